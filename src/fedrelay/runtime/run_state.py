"""What changes in a run from round to round, and how a checkpoint stores it: named tensors, and a pointer to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedrelay.robustness.guard import NO_HOPS_YET, TypicalHop
from fedrelay.routes.arrival import Arrival, HopReport
from fedrelay.runtime.record_lines import is_number


@dataclass(frozen=True)
class BestSoFar:
    """The best model on validation samples so far."""

    round: int
    metric: str
    value: float
    weights: Tensor


@dataclass(frozen=True)
class RunState:
    """Everything that changes from round to round."""

    round: int
    weights: Tensor
    """The global model."""

    seconds: float = 0.0
    server: Mapping[str, Tensor] = field(default_factory=dict)
    """Server state of the terms and of the merge."""

    waiting: Mapping[int, Arrival] = field(default_factory=dict)
    """Slot → the model that waits there for a merge."""

    typical_hop: TypicalHop = NO_HOPS_YET
    """What hops are like, where the guard needs it."""

    stopped: str = ""
    """Why the run stopped before its last round; empty as long as it goes on."""

    best: BestSoFar | None = None
    """The best model of the rounds that `eval.every` divides; None without validation samples."""

    merges: int = 0
    """The number of merges so far."""


def state_tensors(state: RunState) -> dict[str, Tensor]:
    """All tensors of a state, each under a name."""
    named = {"weights": state.weights} | {f"server/{name}": tensor for name, tensor in state.server.items()}
    for slot, arrival in state.waiting.items():
        named[f"waiting/{slot}"] = arrival.weights
        named |= {f"waiting/{slot}/{name}": tensor for name, tensor in arrival.payload.items()}
    return named


def state_from_tensors(round: int, named: Mapping[str, Tensor], pointer: Mapping[str, Any]) -> RunState:
    """The state from its tensors and the pointer to them."""

    def below(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): tensor for name, tensor in named.items() if name.startswith(prefix)}

    arrivals = {
        int(slot): Arrival(
            int(slot),
            tuple(int(client) for client in facts["clients"]),
            named[f"waiting/{slot}"],
            tuple(_hop(hop) for hop in facts["hops"]),
            below(f"waiting/{slot}/"),
            visited_groups=tuple(int(group) for group in facts.get("legs", ())),
        )
        for slot, facts in pointer.get("waiting", {}).items()
    }
    typical_hop = TypicalHop(*map(float, pointer["typical_hop"]))
    stopped = str(pointer.get("stopped", ""))
    return RunState(
        round,
        named["weights"],
        float(pointer["seconds"]),
        below("server/"),
        arrivals,
        typical_hop,
        stopped,
        merges=int(pointer.get("merges", 0)),
    )


def _hop(facts: Mapping[str, Any]) -> HopReport:
    """A hop report from the pointer of a checkpoint."""
    accuracies = tuple(float(share) for share in facts["accuracy_on_visited"])
    numbers = [facts[name] for name in ("samples", "steps", "loss", "max_abs_weight", "update_norm")]
    if not all(is_number(number) for number in numbers) or not isinstance(facts["refused"], str):
        raise ValueError("a report of a client without numbers")
    attempts = tuple(map(str, facts.get("attempts", ())))
    return HopReport(**{**facts, "accuracy_on_visited": accuracies, "attempts": attempts})
