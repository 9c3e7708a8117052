from __future__ import annotations

import pytest

from fedrelay.runtime.bench import WORKLOADS, bench


@pytest.mark.slow
def test_every_program_is_measured_on_every_workload():
    paces = list(bench(workers=2, rounds=2))
    assert [pace.workload for pace in paces] == [workload.name for workload in WORKLOADS for _ in range(3)]
    assert {pace.program for pace in paces} == {"plain PyTorch loop", "FedRelay, 1 worker", "FedRelay, 2 workers"}
    assert all(0 < pace.best <= pace.median <= pace.worst for pace in paces)
