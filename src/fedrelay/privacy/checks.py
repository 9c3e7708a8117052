"""Refuses experiments in which differential privacy would not hold."""

from __future__ import annotations

from collections.abc import Mapping

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Experiment, TrainSettings
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.client_level_privacy import ClientLevelPrivacy
from fedrelay.routes.all_to_all import AllToAll
from fedrelay.routes.base import Routing
from fedrelay.warmup.base import Warmup


def check_private(
    method: str,
    terms: Mapping[str, type[Term]],
    route: Routing,
    warmup: Warmup | None,
    pools_data: bool,
    train: TrainSettings,
) -> None:
    """Refuse a method whose clients send more than the noisy model."""
    for name, term in terms.items():
        if term.payload_reveals_data:
            raise SpecError(f"method {method!r}: 'dp' cannot protect what the term {name!r} sends beside the model")
    if train.optimizer_state == "payload":
        raise SpecError(
            "train.optimizer_state: 'dp' cannot protect what 'payload' sends beside the model; use 'reset' or 'client'"
        )
    if warmup is not None and warmup.shares_samples:
        raise SpecError(f"method {method!r}: 'dp' cannot protect samples that clients share")
    if isinstance(route, AllToAll) and route.weights == "accuracy":
        raise SpecError(
            "route.weights: 'accuracy' reveals how models do on a client's samples, which 'dp' cannot protect; "
            "set route.weights=uniform"
        )
    if pools_data:
        raise SpecError(f"method {method!r}: trains on pooled data, so there are no clients for 'dp' to protect")


def check_nothing_unsent(experiment: Experiment) -> None:
    """Refuse error feedback: a change that waits at a client would be sent later than the hop that is accounted for."""
    if experiment.transfer.codec == "top-k" and experiment.transfer.error_feedback:
        raise SpecError(
            "transfer.error_feedback: with 'dp' every change is sent with its own hop, or never; "
            "set transfer.error_feedback=false"
        )


def check_budget(term: ClientLevelPrivacy | None) -> None:
    """Refuse a budget that does not allow a single hop."""
    if term is not None and term.max_hops == 0:
        raise SpecError(
            f"terms.dp.epsilon: a single hop costs {term.accountant.epsilon(1):.3g}, more than the budget of "
            f"{term.epsilon:g}; raise terms.dp.epsilon or terms.dp.noise"
        )


def check_fresh_noise(experiment: Experiment) -> None:
    """Refuse recovery that causes hops which the privacy budget does not count."""
    recovery = experiment.recovery
    can_fail = (
        recovery.deadline is not None or experiment.faults or experiment.guard.refuses or experiment.data_at_nodes
    )
    if can_fail and recovery.repeats and recovery.min_arrivals:
        raise SpecError("terms.dp: the privacy budget does not count repeated rounds; set recovery.repeats=0")
    if can_fail and recovery.policy not in ("skip", "retry"):
        raise SpecError(
            f"recovery.policy: the privacy budget of 'dp' does not count hops caused by {recovery.policy!r}; "
            "set recovery.policy to skip or retry"
        )
