"""The guard at the hop: what is checked before a client's model is handed on.

A chain is only as strong as its weakest client: one bad model would spoil all turns that follow. So a model with
values that are not finite or too large is never handed on. On request, an update that is longer than usual is
shortened, and a model that knows less of the public set than the one the client received is refused. The route then
goes on with the model the client had received, and the client keeps what it kept before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from fedrelay.local.arrival import HopReport
from fedrelay.local.visit import Visit
from fedrelay.spec import Guard


def peaks(models: Tensor) -> list[float]:
    """The largest absolute value of each model; not a number where any value is not."""
    low, high = torch.aminmax(models, dim=-1)
    found: list[float] = torch.maximum(-low, high).reshape(-1).tolist()
    return found


def fault_in(guard: Guard, peak: float, others: Iterable[Tensor] = ()) -> str:
    """What is wrong with a model of this peak, or with what goes with it; nothing if it can be used."""
    if not math.isfinite(peak) or not all(math.isfinite(each) for tensor in others for each in peaks(tensor)):
        return "non-finite weights"
    return f"weights beyond {guard.largest:g}" if peak > guard.largest else ""


def shorten(theta: Tensor, visit: Visit) -> Tensor:
    """Shorten updates, in place, to the longest that is allowed; returns the length that each had, `[..., 1]`."""
    update = theta - visit.recv
    length: Tensor = torch.linalg.vector_norm(update, dim=-1, keepdim=True)
    if bool((length > visit.longest).any()):
        theta.copy_(torch.where(length > visit.longest, visit.recv + update * (visit.longest / length), theta))
    return length


def usual_length(reports: Iterable[HopReport], before: float) -> float:
    """The median length of accepted updates; as before where there are none."""
    lengths = [report.length for report in reports if not report.refused and report.length]
    return median(lengths) if lengths else before


@dataclass(frozen=True)
class Before:
    """What a turn may have to be taken back to."""

    recv: Tensor
    state: Mapping[str, Tensor]
    baggage: Mapping[str, Tensor]

    @classmethod
    def of(cls, visit: Visit) -> Before:
        """Copies, because a turn may write where it read."""
        return cls(
            visit.recv.clone(),
            {name: tensor.clone() for name, tensor in visit.state.items()},
            {name: tensor.clone() for name, tensor in visit.baggage.items()},
        )

    def restore(self, visit: Visit, out: Tensor) -> None:
        """Undo a turn: the model, what the client keeps and what travels along."""
        out.copy_(self.recv)
        for name, tensor in self.state.items():
            visit.kept[name].copy_(tensor)
        for name, tensor in self.baggage.items():
            visit.baggage[name].copy_(tensor)
