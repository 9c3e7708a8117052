"""Which workloads of a benchmark can run here: large data sets are optional."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

import fedrelay as fr


class Workload(Protocol):
    """What benchmarks call a workload: its title, and the name of its data."""

    @property
    def title(self) -> str: ...

    @property
    def data(self) -> str: ...


W = TypeVar("W", bound=Workload)


def available(workloads: Iterable[W]) -> Iterator[W]:
    """Those whose data are found; the others are named."""
    for workload in workloads:
        try:
            fr.load_data(workload.data, clients=10, partition="iid")
        except fr.DataError as missing:
            print(f"{workload.title} is left out: {missing}")
        else:
            yield workload
