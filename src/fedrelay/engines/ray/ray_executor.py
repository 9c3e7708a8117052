"""The engine for a cluster: the work items of the local engine, run by Ray.

A route batch is a chain of Ray tasks of some waves each. Ray starts a task on any free core as soon as the task before
it is done. Models go from task to task through the object store; the server fetches the final ones. A task is a pure
function of what it reads: when its worker or a whole machine is lost, Ray runs it again, and also the tasks before it
whose models were lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from fedrelay.engines.base import Engine
from fedrelay.engines.local.executor import MAX_DEATHS, WorkItem
from fedrelay.engines.local.simulation_engine import SimulationEngine
from fedrelay.engines.ray.cluster import Cluster, Ref, connect
from fedrelay.engines.ray.remote_work import run_work_item
from fedrelay.engines.ray.serialized_job import Bytes, bytes_of, pack, tensor_from
from fedrelay.errors import SpecError
from fedrelay.local.client_state import ClientStateStore
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatLayout

T = TypeVar("T")
Placement = Literal["SPREAD", "DEFAULT"]
"""Ray's names: over all machines, or near to what the task reads."""

TASK_SECONDS = 0.25
"""Ray tasks are made this long: long enough to outweigh their start, short enough to run again after a failure."""

INLINE_BYTES = 100_000
"""Models up to this size are sent with the task; larger ones are put into the object store once for all tasks."""


def start_ray(
    job: TrainingJob, workers: int, address: str | None, client_states: ClientStateStore | None = None
) -> Engine:
    """The engine on a cluster, with at most `workers` tasks at a time; 0 = as many as the cluster has cores."""
    check_ray(job)
    return SimulationEngine(job, RayExecutor(job, connect(address), workers), client_states)


def check_ray(job: TrainingJob) -> None:
    """Raise a SpecError if the job cannot run on a cluster."""
    if torch.device(job.train.device).type != "cpu":
        raise SpecError(f"train.device: the ray engine computes on cpu, got {job.train.device!r}")


class RayExecutor:
    """Runs work items as Ray tasks."""

    def __init__(self, job: TrainingJob, cluster: Cluster, workers: int = 0) -> None:
        self.cluster = cluster
        self.max_items = workers
        self.parallelism = workers or cluster.cpus
        self.rows = ObjectStoreTensorRows(cluster, job.layout)
        self.packed_job = cluster.put(pack(job))
        self.remote_run = cluster.ray.remote(num_cpus=1, max_retries=MAX_DEATHS - 1)(run_work_item)
        self.max_waves = 1

    def allocate(self, rows: int) -> ObjectStoreTensorRows:
        self.rows.clear()
        return self.rows

    def run_all(self, items: Sequence[WorkItem[T]]) -> list[T]:
        """Send the tasks of all items, of at most `max_items` items at a time, and wait for them.

        After a failure, the other tasks finish and their results are ignored: `ray.cancel` can crash the process that
        calls it if a task ends at the same moment.
        """
        sent: list[Ref] = []
        ends: list[Ref] = []
        for item in items:
            if self.max_items and len(ends) >= self.max_items:
                _, ends = self.cluster.wait_for_first(ends)
            sent += map(self._send, item.split(self.max_waves))
            ends.append(sent[-1])
        replies = self.cluster.get(sent)
        self._adjust_max_waves(sum(seconds for seconds, _ in replies), [len(item.split(1)) for item in items])
        return [result for _, result in replies]

    def close(self) -> None:
        self.rows.clear()

    def _adjust_max_waves(self, seconds: float, waves: Sequence[int]) -> None:
        """Choose the length of the next tasks from the time of these; results do not depend on it."""
        if max(waves, default=1) > 1:
            self.max_waves = max(1, int(TASK_SECONDS * sum(waves) / seconds))

    def _send(self, item: WorkItem[Any]) -> Ref:
        """Start a task; the rows that it will write become references to its results.

        By default Ray prefers the machine that has what a task reads: right for what goes on where another task ended,
        but all others would wait for the machine of the server while the rest are idle.
        """
        where: Placement = "DEFAULT" if self.rows.results & set(item.reads) else "SPREAD"
        task = self.remote_run.options(num_returns=1 + len(item.writes), scheduling_strategy=where)
        found = task.remote(self.packed_job, item, *(self.rows.reference(row) for row in item.reads))
        reply, *written = found if item.writes else [found]
        self.rows.set_references(dict(zip(item.writes, written, strict=True)))
        return reply


class ObjectStoreTensorRows:
    """Rows that are in this process, in the object store, or in both."""

    def __init__(self, cluster: Cluster, layout: FlatLayout) -> None:
        self.cluster = cluster
        self.layout = layout
        self.local: dict[int, Tensor] = {}
        self.remote: dict[int, Bytes | Ref] = {}
        self.results: set[int] = set()
        """Rows that tasks have written."""
        self.stored: list[Ref] = []
        """Kept for the whole round: tasks that run again need them again."""

    def __getitem__(self, row: int) -> Tensor:
        """One row, fetched if it is not here; small rows are fetched all at once."""
        if row not in self.local:
            small = self.layout.bytes <= INLINE_BYTES
            rows = [each for each in self.remote if each not in self.local] if small else [row]
            for each, raw in zip(rows, self.cluster.get([self.remote[each] for each in rows]), strict=True):
                self.local[each] = tensor_from(raw.copy(), self.layout.dtype, (self.layout.size,))
        return self.local[row]

    def __setitem__(self, row: int, value: Tensor | float) -> None:
        self.local[row] = torch.empty(self.layout.size, dtype=self.layout.dtype).copy_(torch.as_tensor(value))
        self.remote.pop(row, None)
        self.results.discard(row)

    def reference(self, row: int) -> Bytes | Ref:
        """What to pass to a task that reads a row: its bytes, or a reference to them in the object store."""
        if row not in self.remote:
            raw = bytes_of(self.local[row])
            if self.layout.bytes <= INLINE_BYTES:
                self.remote[row] = raw
            else:
                self.remote[row] = self.cluster.put(raw)
                self.stored.append(self.remote[row])
        return self.remote[row]

    def set_references(self, rows: dict[int, Ref]) -> None:
        """Set rows to the future results of tasks."""
        self.remote |= rows
        self.results |= rows.keys()
        for row in rows:
            self.local.pop(row, None)

    def clear(self) -> None:
        self.local, self.remote, self.results, self.stored = {}, {}, set(), []
