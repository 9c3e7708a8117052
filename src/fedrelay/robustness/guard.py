"""The guard at the hop: what is checked before a client's model is handed on.

A chain is only as strong as its weakest client: one bad model would spoil all turns that follow. So a model with
values that are not finite or too large is never handed on. On request, an update that is longer than usual is
shortened, and a model is refused whose loss on the public set rose by more than is usual. The route then goes on with
the model the client had received, and the client keeps what it kept before.

What is usual is the median of the last round, both times. An honest client that holds few classes unlearns some of the
others, the more the sharper the model is: what it may cost the public set can only be told from what it costs with
others. The median counts refused models too; otherwise the bound would sink with every honest one that it refuses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from fedrelay.data.federation import Federation
from fedrelay.data.public import PublicFederation
from fedrelay.experiment.spec import GuardSettings
from fedrelay.local.arrival import HopReport
from fedrelay.local.evaluation import mean_loss
from fedrelay.local.hop_context import HopContext
from fedrelay.models.layout import FlatModule

WORSE = "a higher loss on the public set"
EMPTY = "nothing but zeros"


class TypicalHop(NamedTuple):
    """What turns are like, by the medians of the last round in which there were any."""

    length: float = 0.0
    """Of updates that were accepted."""

    rise: float = 0.0
    """Of the loss on the public set, whether accepted or not."""

    def after(self, reports: Iterable[HopReport]) -> TypicalHop:
        """What is usual after a round; as before where nothing is known of it."""
        reports = list(reports)
        lengths = [report.length for report in reports if not report.refused and report.length]
        rises = [report.rise for report in reports if report.rise is not None]
        return TypicalHop(median(lengths) if lengths else self.length, median(rises) if rises else self.rise)


NO_HOPS_YET = TypicalHop()
"""Before anybody has had a turn."""


def peaks(models: Tensor) -> list[float]:
    """The largest absolute value of each model; not a number where any value is not."""
    low, high = torch.aminmax(models, dim=-1)
    found: list[float] = torch.maximum(-low, high).reshape(-1).tolist()
    return found


def fault_in(guard: GuardSettings, peak: float, others: Iterable[Tensor] = ()) -> str:
    """What is wrong with a model of this peak, or with what goes with it; nothing if it can be used."""
    if not math.isfinite(peak) or not all(math.isfinite(each) for tensor in others for each in peaks(tensor)):
        return "non-finite weights"
    return f"weights beyond {guard.largest:g}" if peak > guard.largest else ""


def shorten(theta: Tensor, visit: HopContext) -> Tensor:
    """Shorten updates, in place, to the longest that is allowed; returns the length that each had, `[..., 1]`."""
    update = theta - visit.recv
    length: Tensor = torch.linalg.vector_norm(update, dim=-1, keepdim=True)
    if bool((length > visit.longest).any()):
        theta.copy_(torch.where(length > visit.longest, visit.recv + update * (visit.longest / length), theta))
    return length


def emptied(guard: GuardSettings, peak: float, recv: Tensor) -> str:
    """Whether nothing is left of a model, where such models are left out; `recv` without its counters."""
    return EMPTY if guard.refuses and peak == 0 and bool(recv.any()) else ""


def worsened(
    guard: GuardSettings, bench: FlatModule, model: Tensor, recv: Tensor, federation: Federation, usual: TypicalHop
) -> tuple[str, float | None]:
    """Whether a model knows so much less of the public set that it is refused, and by how much its loss rose."""
    if guard.tolerance is None:
        return "", None
    assert isinstance(federation, PublicFederation)
    rise = mean_loss(bench, model, federation.public) - mean_loss(bench, recv, federation.public)
    reason = "" if rise <= guard.tolerance + max(0.0, usual.rise) else WORSE
    return reason, rise if math.isfinite(rise) else None


def guard_passes(guard: GuardSettings, federation: Federation) -> int:
    """Samples that go forward through a model at every turn for a look at the public set, before and after it."""
    if guard.tolerance is None or not isinstance(federation, PublicFederation):
        return 0
    return 2 * len(federation.public.y)


@dataclass(frozen=True)
class HopSnapshot:
    """What a turn may have to be taken back to."""

    recv: Tensor
    state: Mapping[str, Tensor]
    payload: Mapping[str, Tensor]

    @classmethod
    def of(cls, visit: HopContext) -> HopSnapshot:
        """Copies, because a turn may write where it read."""
        return cls(
            visit.recv.clone(),
            {name: tensor.clone() for name, tensor in visit.state.items()},
            {name: tensor.clone() for name, tensor in visit.payload.items()},
        )

    def restore(self, visit: HopContext, out: Tensor) -> None:
        """Undo a turn: the model, what the client keeps and what travels along."""
        out.copy_(self.recv)
        for name, tensor in self.state.items():
            visit.kept[name].copy_(tensor)
        for name, tensor in self.payload.items():
            visit.payload[name].copy_(tensor)
