"""The class counts of a run's clients: as its folder has them, or from the data, if they are found."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING

from fedrelay.data.client_class_counts import ClientClassCounts, count_classes
from fedrelay.errors import FedRelayError
from fedrelay.report.load_runs import RunView

if TYPE_CHECKING:
    from fedrelay.experiment.spec import DataSettings, Experiment
    from fedrelay.warmup.base import Warmup


def class_counts_of_run(run: RunView) -> ClientClassCounts | str:
    """The class counts of a run's clients, or the reason why they are not known."""
    found = run.records.class_counts
    if found is not None:
        return found
    facts = run.records.facts
    if facts.get("own_data"):
        return "the run used data from Python, which the run folder does not contain"
    if run.experiment.data_at_nodes:
        return "the samples are at the nodes, and reports do not contact nodes"
    from fedrelay.experiment.data_and_model import named_task  # imports PyTorch

    try:
        experiment, fingerprint = run.experiment, str(facts.get("data_fingerprint"))
        pooled, task = run.records.training == "pooled", named_task(experiment)
        return _opened(experiment.data, experiment.seed, task, pooled, _sharing(experiment), fingerprint)
    except FedRelayError as error:
        return f"the data cannot be opened here: {str(error).splitlines()[0]}"  # the rest lists searched folders


def _sharing(experiment: Experiment) -> Warmup | None:
    """The warm-up that shares samples, if the run had one. Reports import no plug-ins, so it must be built in."""
    from fedrelay.experiment.method import build_method
    from fedrelay.experiment.method_catalogue import METHODS

    names = [name.strip() for name in experiment.method.split("+")]
    entries = [METHODS[name] for name in names if name in METHODS]
    shares = any(entry.warmup is not None and entry.warmup.shares_samples for entry in entries)
    return build_method(experiment).warmup if shares and len(entries) == len(names) and not experiment.plugins else None


@lru_cache(maxsize=256)
def _opened(
    data: DataSettings, seed: int, task: str | None, pooled: bool, sharing: Warmup | None, fingerprint: str
) -> ClientClassCounts | str:
    """Open each federation once, however many methods share it and however often a page is made."""
    from fedrelay.data.open_federation import open_federation
    from fedrelay.data.pooled_federation import PooledFederation
    from fedrelay.experiment.data_and_model import below_public

    federation = open_federation(data, seed, task)
    if sharing is not None:
        federation = below_public(federation, partial(sharing.with_samples_shared_by_clients, seed=seed))
    as_run = below_public(federation, PooledFederation) if pooled else federation
    if as_run.fingerprint() != fingerprint:
        return "the data found here are not the data of the run"
    if not federation.class_count:
        return "the samples have no classes"
    return count_classes(federation, first=True)
