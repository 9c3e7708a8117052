"""The guard: checks of a client's model before it travels on.

One bad model would spoil all hops that follow in a chain. So a model with values that are not finite or too large is
never passed on. Optionally, an update that is longer than typical is clipped, and a model is refused if its loss on the
public set increased by more than is typical. The route then continues with the model that the client had received, and
the client keeps its old state.

Typical means the median of the last round. An honest client that holds few classes unlearns some of the others, so an
acceptable increase can only be told from other clients' increases. The median includes refused models; otherwise the
bound would sink with every honest model that it refuses.

Before a merge, the samples of a route can be capped: clients report their own number of samples, and a merge that
weights by samples would otherwise follow whoever reports the most.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from fedrelay.data.federation import Federation
from fedrelay.data.public_samples import FederationWithPublicSamples
from fedrelay.experiment.spec import GuardSettings
from fedrelay.local.evaluation import evaluate
from fedrelay.local.hop_context import HopContext
from fedrelay.models.flat_layout import FlatModule
from fedrelay.routes.arrival import Arrival, HopReport
from fedrelay.tasks.base import Task

WORSE = "a higher loss on the public set"
EMPTY = "nothing but zeros"


class TypicalHop(NamedTuple):
    """Medians over the hops of the last round that had any."""

    update_norm: float = 0.0
    """Over accepted updates."""

    public_loss_increase: float = 0.0
    """Over all models, accepted or refused."""

    def updated(self, reports: Iterable[HopReport]) -> TypicalHop:
        """The medians after a round; a median over nothing keeps its old value."""
        reports = list(reports)
        norms = [report.update_norm for report in reports if not report.refused and report.update_norm]
        increases = [each.public_loss_increase for each in reports if each.public_loss_increase is not None]
        return TypicalHop(
            median(norms) if norms else self.update_norm,
            median(increases) if increases else self.public_loss_increase,
        )


NO_HOPS_YET = TypicalHop()


def max_abs_weights(models: Tensor) -> list[float]:
    """The largest absolute value of each model; NaN if any of its values is."""
    # Two reductions, because torch.aminmax along a dimension takes up to twenty times as long as both.
    found: list[float] = torch.maximum(-models.amin(-1), models.amax(-1)).reshape(-1).tolist()
    return found


def all_finite(tensor: Tensor) -> bool:
    """Whether no value is NaN or infinite."""
    return all(math.isfinite(value) for value in torch.aminmax(tensor))  # NaN is the minimum and the maximum


def clip_updates(theta: Tensor, received: Tensor, max_norm: Tensor) -> Tensor:
    """Scale updates down to the largest allowed norm, in place; returns the norms before, `[..., 1]`."""
    update = theta - received
    norm: Tensor = torch.linalg.vector_norm(update, dim=-1, keepdim=True)
    if bool((norm > max_norm).any()):
        theta.copy_(torch.where(norm > max_norm, received + update * (max_norm / norm), theta))
    return norm


def check_weights(guard: GuardSettings, max_abs_weight: float) -> str:
    """Why a model with this largest weight must be refused; empty if it is fine."""
    if not math.isfinite(max_abs_weight):
        return "non-finite weights"
    return f"weights beyond {guard.largest:g}" if max_abs_weight > guard.largest else ""


def check_others(others: Mapping[str, Mapping[str, Tensor]]) -> str:
    """Why a hop must be refused that left such client states or payloads, by kind and name; empty if it is fine."""
    for kind, tensors in others.items():
        for name, tensor in tensors.items():
            if not all_finite(tensor):
                return f"non-finite values in the {kind} {name!r}"
    return ""


def check_not_zeroed(guard: GuardSettings, max_abs_weight: float, received: Tensor) -> str:
    """Why a model is refused that a client set to zero, if the guard refuses models at all; else empty."""
    return EMPTY if guard.refuses and max_abs_weight == 0 and bool(received.any()) else ""


def check_public_loss(
    guard: GuardSettings,
    flat_module: FlatModule,
    model: Tensor,
    received: Tensor,
    task: Task,
    federation: Federation,
    typical: TypicalHop,
) -> tuple[str, float | None]:
    """Why a model is refused whose loss on the public set increased too much, or empty; and the increase."""
    if guard.tolerance is None:
        return "", None
    assert isinstance(federation, FederationWithPublicSamples)
    before, after = (evaluate(flat_module, weights, task, federation.public).mean_loss for weights in (received, model))
    increase = after - before
    reason = "" if increase <= guard.tolerance + max(0.0, typical.public_loss_increase) else WORSE
    return reason, increase if math.isfinite(increase) else None


def guard_forward_passes(guard: GuardSettings, federation: Federation) -> int:
    """Forward passes per hop to evaluate the public set, before and after training."""
    if guard.tolerance is None or not isinstance(federation, FederationWithPublicSamples):
        return 0
    return 2 * len(federation.public.y)


def cap_shares(arrivals: Sequence[Arrival], largest_share: float) -> list[Arrival]:
    """Arrivals of which none counts for more than this share of all samples; where that is impossible, all are equal.

    Only routes above the cap count for fewer samples, rounded down to whole ones. Routes without samples stay so.
    """
    claimed = sorted((arrival.samples for arrival in arrivals if arrival.samples), reverse=True)
    most = _most_samples(claimed, largest_share) if claimed else 0
    return [_counting(arrival, most) if arrival.samples > most else arrival for arrival in arrivals]


def _most_samples(claimed: Sequence[int], largest_share: float) -> int:
    """How many samples one route may count for. `claimed` is in descending order, without zeros."""
    uncapped = sum(claimed)
    for capped, samples in enumerate(claimed):
        left = 1 - capped * largest_share  # the share of all routes that are not capped
        if left <= 0:
            break
        most = largest_share * uncapped / left * (1 + 1e-12)  # a product that is whole must not be rounded down
        if samples <= most:
            return int(most) if capped else samples
        uncapped -= samples
    return claimed[-1]


def _counting(arrival: Arrival, samples: int) -> Arrival:
    """The arrival as if its hops had this many samples together, each in proportion to what it reported."""
    ends = [samples * end // arrival.samples for end in accumulate(hop.samples for hop in arrival.hops)]
    counts = (end - begin for begin, end in pairwise((0, *ends)))
    hops = (replace(hop, samples=count) for hop, count in zip(arrival.hops, counts, strict=True))
    return replace(arrival, hops=tuple(hops))


@dataclass(frozen=True)
class HopSnapshot:
    """The tensors before a hop, to which a refused hop is rolled back."""

    received: Tensor
    client_state: Mapping[str, Tensor]
    payload: Mapping[str, Tensor]

    @classmethod
    def of(cls, context: HopContext) -> HopSnapshot:
        """Copies, because a hop may overwrite what it read."""
        return cls(
            context.received.clone(),
            {name: tensor.clone() for name, tensor in context.client_state.items()},
            {name: tensor.clone() for name, tensor in context.payload.items()},
        )

    def restore(self, context: HopContext, out: Tensor) -> None:
        """Undo a hop: the model, the client state and the payload."""
        out.copy_(self.received)
        for name, tensor in self.client_state.items():
            context.new_client_state[name].copy_(tensor)
        for name, tensor in self.payload.items():
            context.payload[name].copy_(tensor)
