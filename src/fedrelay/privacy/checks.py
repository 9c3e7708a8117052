"""What differential privacy cannot be claimed for: more than the guarded model is sent, or noise is used twice."""

from __future__ import annotations

from collections.abc import Mapping

from fedrelay.engines.start import all_through_server
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Experiment
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.dp import Dp
from fedrelay.routes.base import Routing
from fedrelay.routes.star import Star
from fedrelay.warmup.base import Warmup


def check_private(
    method: str, terms: Mapping[str, type[Term]], route: Routing, warmup: Warmup | None, pools_data: bool
) -> None:
    """Refuse a method whose clients send more than the guarded model."""
    for name, term in terms.items():
        if term.reveals:
            raise SpecError(f"method {method!r}: the term {name!r} sends more of clients than 'dp' can guard")
    if warmup is not None and warmup.shares_samples:
        raise SpecError(f"method {method!r}: clients give samples away, which 'dp' cannot guard")
    if isinstance(route, Star) and route.weights == "accuracy":
        raise SpecError(
            "route.weights: 'accuracy' on clients' samples decides what they train, which 'dp' cannot guard"
        )
    if pools_data:
        raise SpecError(f"method {method!r}: all data are in one place, there is nothing that 'dp' could guard")


def check_budget(term: Dp | None) -> None:
    """Refuse a budget in which not one visit has room: nobody would ever train."""
    if term is not None and term.most_visits == 0:
        raise SpecError(
            f"terms.dp.epsilon: a budget of {term.epsilon:g} has no room for a single visit, which costs "
            f"{term.accountant.epsilon(1):.3g}; raise it, or terms.dp.noise"
        )


def check_fresh_noise(experiment: Experiment) -> None:
    """Visits must be those of the plan, each with noise of its own; a round that repeats makes visits not counted."""
    recovery = experiment.recovery
    late = recovery.deadline is not None
    trouble = late or experiment.faults or experiment.guard.refuses or all_through_server(experiment)
    if trouble and recovery.repeats and recovery.min_arrivals:
        raise SpecError("terms.dp: a round that repeats makes visits that are not counted; set recovery.repeats=0")
    if trouble and recovery.policy not in ("skip", "retry"):
        raise SpecError(
            f"recovery.policy: {recovery.policy!r} makes visits that 'dp' has not counted; take skip or retry"
        )
