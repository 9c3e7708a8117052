"""The engine for a cluster: the tasks of the local engine, carried out by Ray.

A convoy's way is a chain of Ray tasks, some waves each, which Ray starts wherever a core is free as soon as the task
before it is done. Models go from task to task through the object store; the server fetches what came home. A task is a
pure function of what it reads: when its worker or a whole machine is lost, Ray does it again, and the tasks before it
whose models were lost as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedrelay.engines.base import Engine
from fedrelay.engines.local.engine import LocalEngine
from fedrelay.engines.local.executor import MOST_DEATHS, WorkItem
from fedrelay.engines.ray.cluster import Cluster, Ref, connect
from fedrelay.engines.ray.packed_job import Bytes, bytes_of, pack, tensor_from
from fedrelay.engines.ray.remote_work import run_task
from fedrelay.errors import SpecError
from fedrelay.local.client_state import ClientStateStore
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.layout import FlatLayout

T = TypeVar("T")

LEG_SECONDS = 0.25
"""As many waves make one Ray task as take about so long: enough to make up for its start, little to be done again."""

SMALL = 100_000
"""Bytes up to which a model is sent with the task; larger ones are laid down once for all tasks that read them."""


def start_ray(
    job: TrainingJob, workers: int, address: str | None, client_states: ClientStateStore | None = None
) -> Engine:
    """The engine on a cluster, with at most so many tasks at once; 0 = as many as it has cores."""
    check_ray(job)
    return LocalEngine(job, RayExecutor(job, connect(address), workers), client_states)


def check_ray(job: TrainingJob) -> None:
    """Refuse what cannot be done on a cluster."""
    if torch.device(job.train.device).type != "cpu":
        raise SpecError(f"train.device: the ray engine computes on cpu, got {job.train.device!r}")


class RayExecutor:
    """The workers of a cluster."""

    def __init__(self, job: TrainingJob, cluster: Cluster, workers: int = 0) -> None:
        self.cluster = cluster
        self.workers = workers
        self.count = workers or cluster.cpus
        self.table = RemoteRows(cluster, job.layout)
        self.packed = cluster.put(pack(job))
        self.remote_task = cluster.ray.remote(num_cpus=1, max_retries=MOST_DEATHS - 1)(run_task)
        self.longest_leg = 1

    def models(self, rows: int) -> RemoteRows:
        """Room for any number of rows."""
        self.table.clear()
        return self.table

    def carry_out(self, tasks: Sequence[WorkItem[T]]) -> list[T]:
        """Send all legs of all tasks at once, or of so many tasks as there may be at a time, and wait for them.

        After a failure, those under way end unheard: `ray.cancel` can bring down the process that calls it, if a task
        ends at that moment.
        """
        sent: list[Ref] = []
        ends: list[Ref] = []
        for task in tasks:
            if self.workers and len(ends) >= self.workers:
                _, ends = self.cluster.first(ends)
            sent += [self._send(leg) for leg in task.legs(self.longest_leg)]
            ends.append(sent[-1])
        answers = self.cluster.get(sent)
        self._pace(sum(seconds for seconds, _ in answers), [len(task.legs(1)) for task in tasks])
        return [outcome for _, outcome in answers]

    def close(self) -> None:
        """Let go of what lies in the cluster."""
        self.table.clear()

    def _pace(self, seconds: float, waves: Sequence[int]) -> None:
        """Learn from tasks that can be cut how long their legs should be; results do not depend on it."""
        if max(waves, default=1) > 1:
            self.longest_leg = max(1, int(LEG_SECONDS * sum(waves) / seconds))

    def _send(self, leg: WorkItem[Any]) -> Ref:
        """Set off on a leg; what it will have written is known to the table from now on."""
        found = self.remote_task.options(num_returns=1 + len(leg.writes)).remote(
            self.packed, leg, *(self.table.whereabouts(row) for row in leg.reads)
        )
        answer, *written = found if leg.writes else [found]
        self.table.expect(dict(zip(leg.writes, written, strict=True)))
        return answer


class RemoteRows:
    """Rows that lie here, in the object store, or in both."""

    def __init__(self, cluster: Cluster, layout: FlatLayout) -> None:
        self.cluster = cluster
        self.layout = layout
        self.here: dict[int, Tensor] = {}
        self.there: dict[int, Bytes | Ref] = {}
        self.laid_down: list[Ref] = []
        """Kept for the whole round: tasks that are done again need them again."""

    def __getitem__(self, row: int) -> Tensor:
        """One row, fetched if it is not here; small ones come all together."""
        if row not in self.here:
            small = self.layout.bytes <= SMALL
            rows = [each for each in self.there if each not in self.here] if small else [row]
            for each, raw in zip(rows, self.cluster.get([self.there[each] for each in rows]), strict=True):
                self.here[each] = tensor_from(raw.copy(), self.layout.dtype, (self.layout.size,))
        return self.here[row]

    def __setitem__(self, row: int, value: Tensor | float) -> None:
        """Write a row here."""
        self.here[row] = torch.empty(self.layout.size, dtype=self.layout.dtype).copy_(torch.as_tensor(value))
        self.there.pop(row, None)

    def whereabouts(self, row: int) -> Bytes | Ref:
        """What to hand to a task that reads a row."""
        if row not in self.there:
            raw = bytes_of(self.here[row])
            if self.layout.bytes <= SMALL:
                self.there[row] = raw
            else:
                self.there[row] = self.cluster.put(raw)
                self.laid_down.append(self.there[row])
        return self.there[row]

    def expect(self, rows: dict[int, Ref]) -> None:
        """Rows that tasks under way will have written."""
        self.there |= rows
        for row in rows:
            self.here.pop(row, None)

    def clear(self) -> None:
        """Forget everything."""
        self.here, self.there, self.laid_down = {}, {}, []
