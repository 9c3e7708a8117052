"""Remote tasks: tasks that are done in a process of a cluster, with all that they need sent to them.

A remote task is a pure function of what it is given, so one whose worker died can be done again anywhere else.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from fedrelay.engines.local.executor import WorkerContext, WorkItem, keep_freed_memory
from fedrelay.engines.ray.packed_job import Bytes, PackedJob, bytes_of, tensor_from
from fedrelay.models.layout import FlatLayout

_PLACES: dict[str, WorkerContext] = {}
"""The workplace of this process for the job at hand: making one for every task would take longer than the task."""


def run_task(packed: PackedJob, task: WorkItem[Any], *read: Bytes) -> Any:
    """Do a task with the rows that it reads; the seconds it took and its outcome, then each row that it wrote."""
    place = _workplace(packed)
    began = time.perf_counter()
    rows = _rows(task, read, place.job.layout)
    place.models = rows
    try:
        outcome = task.run(place)
    except BaseException:
        _PLACES.clear()  # whoever comes next should not find it as it was left in the middle of a step
        raise
    answer = time.perf_counter() - began, outcome
    return (answer, *(bytes_of(rows[row]) for row in task.writes)) if task.writes else answer


def _workplace(packed: PackedJob) -> WorkerContext:
    if packed.key not in _PLACES:
        torch.set_num_threads(1)
        keep_freed_memory()
        _PLACES.clear()  # the job before is over
        _PLACES[packed.key] = WorkerContext(packed.unpack(), {})
    return _PLACES[packed.key]


def _rows(task: WorkItem[Any], read: tuple[Bytes, ...], layout: FlatLayout) -> dict[int, torch.Tensor]:
    """The rows of a task, in memory that may be written to."""
    rows = {row: torch.empty(layout.size, dtype=layout.dtype) for row in task.writes}
    given = (tensor_from(raw.copy(), layout.dtype, (layout.size,)) for raw in read)
    return rows | dict(zip(task.reads, given, strict=True))
