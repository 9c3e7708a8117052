"""Which engine carries out the hops of an experiment, and what that engine cannot do."""

from __future__ import annotations

from collections.abc import Sequence

from fedrelay.data.federation import Federation
from fedrelay.engines.base import Engine, Way
from fedrelay.engines.local import start_local
from fedrelay.local.keepsakes import Keepsakes
from fedrelay.local.trainer import Job
from fedrelay.spec import Experiment

# An engine is imported where it is asked for: those behind extras take long to load, or are not installed.


def start_engine(job: Job, experiment: Experiment, keepsakes: Keepsakes | None = None) -> Engine:
    """The engine that was asked for, ready to travel; data that are here are worked on here."""
    wanted = experiment.engine
    if wanted.name == "flower":
        from fedrelay.engines.flower.remote import remote_part
        from fedrelay.engines.flower.start import start_flower

        if remote_part(job.federation) is not None:
            return start_flower(job, experiment, keepsakes)
    if wanted.name == "ray":
        from fedrelay.engines.ray import start_ray

        return start_ray(job, wanted.workers, wanted.address, keepsakes)
    return start_local(job, wanted.workers, keepsakes)


def at_nodes(experiment: Experiment) -> bool:
    """Whether the data stay with nodes of their own, which have to be asked."""
    return experiment.engine.name == "flower"


def data_elsewhere(experiment: Experiment) -> Federation | None:
    """The data of an experiment, where the engine knows them and the experiment does not."""
    if at_nodes(experiment):
        from fedrelay.engines.flower.start import open_remote

        return open_remote(experiment)
    return None


def relayed(experiment: Experiment) -> bool:
    """Whether every model goes through the server, however its method would have it travel."""
    return at_nodes(experiment)


def node_names(experiment: Experiment, federation: Federation) -> Sequence[str]:
    """The name of every client's node, where clients are nodes."""
    if at_nodes(experiment):
        from fedrelay.engines.flower.remote import remote_part

        remote = remote_part(federation)
        return remote.nodes if remote is not None else ()
    return ()


def check_engine(job: Job, experiment: Experiment, ways: Sequence[Way] = ()) -> None:
    """Refuse what the engine cannot do, before anything begins."""
    if at_nodes(experiment):
        from fedrelay.engines.flower.start import check_flower

        check_flower(job, experiment, ways)
    if experiment.engine.name == "ray":
        from fedrelay.engines.ray import check_ray

        check_ray(job)


def check_within_reach(experiment: Experiment) -> None:
    """Refuse an engine that is elsewhere and does not answer, before anything is written."""
    if experiment.engine.name == "ray":
        from fedrelay.engines.cluster import check_address

        check_address(experiment.engine.address)
