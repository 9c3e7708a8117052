"""Which engine carries out the hops of an experiment, and what that engine cannot do."""

from __future__ import annotations

from collections.abc import Sequence

from fedrelay.data.federation import Federation
from fedrelay.engines.base import Engine, RouteTraits
from fedrelay.engines.local.engine import start_local
from fedrelay.experiment.spec import Experiment
from fedrelay.local.client_state import ClientStateStore
from fedrelay.local.trainer import TrainingJob

# An engine is imported where it is asked for: those behind extras take long to load, or are not installed.


def start_engine(job: TrainingJob, experiment: Experiment, client_states: ClientStateStore | None = None) -> Engine:
    """The engine that was asked for, ready to travel; data that are here are worked on here."""
    wanted = experiment.engine
    if wanted.name == "flower":
        from fedrelay.engines.flower.server.remote_federation import remote_part
        from fedrelay.engines.flower.start import start_flower

        if remote_part(job.federation) is not None:
            return start_flower(job, experiment, client_states)
    if wanted.name == "ray":
        from fedrelay.engines.ray.engine import start_ray

        return start_ray(job, wanted.workers, wanted.address, client_states)
    return start_local(job, wanted.workers, client_states)


def data_at_nodes(experiment: Experiment) -> bool:
    """Whether the data stay with nodes of their own, which have to be asked."""
    return experiment.engine.name == "flower"


def data_elsewhere(experiment: Experiment, plugins: Sequence[str]) -> Federation | None:
    """The data at the nodes of a real federation, which must allow these plug-ins; None for other engines."""
    if data_at_nodes(experiment):
        from fedrelay.engines.flower.start import open_remote

        return open_remote(experiment, plugins)
    return None


def all_through_server(experiment: Experiment) -> bool:
    """Whether every model goes through the server, however its method would have it travel."""
    return data_at_nodes(experiment)


def node_names(experiment: Experiment, federation: Federation) -> Sequence[str]:
    """The name of every client's node, where clients are nodes."""
    if data_at_nodes(experiment):
        from fedrelay.engines.flower.server.remote_federation import remote_part

        remote = remote_part(federation)
        return remote.nodes if remote is not None else ()
    return ()


def check_engine(job: TrainingJob, experiment: Experiment, ways: Sequence[RouteTraits] = ()) -> None:
    """Refuse what the engine cannot do, before anything begins."""
    if data_at_nodes(experiment):
        from fedrelay.engines.flower.start import check_flower

        check_flower(job, experiment, ways)
    if experiment.engine.name == "ray":
        from fedrelay.engines.ray.engine import check_ray

        check_ray(job)


def check_within_reach(experiment: Experiment) -> None:
    """Refuse an engine that is elsewhere and does not answer, before anything is written."""
    if experiment.engine.name == "ray":
        from fedrelay.engines.ray.cluster import check_address

        check_address(experiment.engine.address)
