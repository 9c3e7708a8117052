"""Start the engine of an experiment, and refuse what it cannot do."""

from __future__ import annotations

from collections.abc import Sequence

from fedrelay.data.federation import Federation
from fedrelay.data.federation_wrapper import find_wrapper
from fedrelay.data.holdout import held_out_samples
from fedrelay.data.validation_samples import FederationWithValidationSamples
from fedrelay.engines.base import Engine, RouteRequirements
from fedrelay.engines.local.simulation_engine import start_local
from fedrelay.experiment.spec import Experiment
from fedrelay.local.client_state import ClientStateStore
from fedrelay.local.trainer import TrainingJob

# Engines are imported where they are needed: some take long to load, or are not installed.


def start_engine(job: TrainingJob, experiment: Experiment, client_states: ClientStateStore | None = None) -> Engine:
    """Start the engine that the experiment names; data on this machine are trained on this machine."""
    wanted = experiment.engine
    if wanted.name == "flower":
        from fedrelay.engines.flower.connect import start_flower
        from fedrelay.engines.flower.server.remote_federation import remote_part

        if remote_part(job.federation) is not None:
            return start_flower(job, experiment, client_states)
    if wanted.name == "ray":
        from fedrelay.engines.ray.ray_executor import start_ray

        return start_ray(job, wanted.workers, wanted.address, client_states)
    return start_local(job, wanted.workers, client_states)


def open_node_data(experiment: Experiment, plugins: Sequence[str]) -> Federation:
    """The data at the nodes of a real federation, which must allow these plug-ins."""
    from fedrelay.engines.flower.connect import open_remote

    return open_remote(experiment, plugins)


def node_names(experiment: Experiment, federation: Federation) -> Sequence[str]:
    """The names of all clients, where clients are nodes."""
    if experiment.data_at_nodes:
        from fedrelay.engines.flower.server.remote_federation import remote_part

        remote = remote_part(federation)
        return remote.nodes if remote is not None else ()
    return ()


def has_validation(experiment: Experiment, federation: Federation) -> bool:
    """Whether there are validation samples, here or at nodes."""
    if experiment.data_at_nodes:
        from fedrelay.engines.flower.server.remote_federation import remote_part

        remote = remote_part(federation)
        return remote is not None and any(facts.validations for facts in remote.facts)
    return find_wrapper(federation, FederationWithValidationSamples) is not None


def held_out_counts(experiment: Experiment, federation: Federation) -> tuple[int, ...]:
    """The number of held-out samples of every client, here or at nodes; empty if no client has any."""
    if experiment.data_at_nodes:
        from fedrelay.engines.flower.server.remote_federation import remote_part

        remote = remote_part(federation)
        counts = [facts.tests for facts in remote.facts] if remote is not None else []
        return tuple(counts) if any(counts) else ()
    found = held_out_samples(federation)
    return () if found is None else tuple(found.counts)


def check_engine(job: TrainingJob, experiment: Experiment, routes: Sequence[RouteRequirements] = ()) -> None:
    """Refuse what the engine cannot do, before the run starts."""
    if experiment.data_at_nodes:
        from fedrelay.engines.flower.connect import check_flower

        check_flower(job, experiment, routes)
    if experiment.engine.name == "ray":
        from fedrelay.engines.ray.ray_executor import check_ray

        check_ray(job)


def check_within_reach(experiment: Experiment) -> None:
    """Refuse a cluster that does not answer, before anything is written."""
    if experiment.engine.name == "ray":
        from fedrelay.engines.ray.cluster import check_address

        check_address(experiment.engine.address)
