"""Work items in a process of the cluster.

A remote work item is a pure function of its arguments, so if its worker died it can run again anywhere else.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from fedrelay.engines.local.executor import WorkerContext, WorkItem, keep_freed_memory
from fedrelay.engines.ray.serialized_job import Bytes, SerializedJob, bytes_of, tensor_from

_WORKERS: dict[str, WorkerContext] = {}
"""The worker context of this process for the current job: creating one per item would take longer than the item."""


def run_work_item(packed: SerializedJob, item: WorkItem[Any], *read: Bytes) -> Any:
    """Run a work item.

    Args:
        packed: The job.
        item: The work item.
        *read: The content of the rows `item.reads`.

    Returns:
        (seconds, result), followed by the content of each row in `item.writes`, if there are any.
    """
    worker = _worker(packed)
    began = time.perf_counter()
    layout = worker.job.layout
    rows = {row: torch.empty(layout.size, dtype=layout.dtype) for row in item.writes}
    copies = (tensor_from(raw.copy(), layout.dtype, (layout.size,)) for raw in read)  # Ray's memory is read-only
    worker.rows = rows = rows | dict(zip(item.reads, copies, strict=True))
    try:
        result = item.run(worker)
    except BaseException:
        _WORKERS.clear()  # it may be in the middle of a step
        raise
    reply = time.perf_counter() - began, result
    return (reply, *(bytes_of(rows[row]) for row in item.writes)) if item.writes else reply


def _worker(packed: SerializedJob) -> WorkerContext:
    if packed.key not in _WORKERS:
        torch.set_num_threads(1)
        keep_freed_memory()
        _WORKERS.clear()  # the job before is over
        _WORKERS[packed.key] = WorkerContext(packed.unpack(), {})
    return _WORKERS[packed.key]
