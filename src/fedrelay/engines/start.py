"""Which engine carries out the hops of an experiment."""

from __future__ import annotations

from fedrelay.engines.base import Engine
from fedrelay.engines.local import start_local
from fedrelay.local.keepsakes import Keepsakes
from fedrelay.local.trainer import Job
from fedrelay.spec import Engine as Wanted


def start_engine(job: Job, wanted: Wanted, keepsakes: Keepsakes | None = None) -> Engine:
    """The engine that was asked for, ready to travel."""
    if wanted.name == "ray":
        from fedrelay.engines.ray import start_ray  # Ray may not be installed, and takes seconds to load

        return start_ray(job, wanted.workers, wanted.address, keepsakes)
    return start_local(job, wanted.workers, keepsakes)
