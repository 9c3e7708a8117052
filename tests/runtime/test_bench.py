from __future__ import annotations

import pytest

import fedrelay as fr
from fedrelay.runtime.bench import WORKLOADS, bench


@pytest.mark.slow
def test_every_program_is_measured_on_every_workload():
    paces = list(bench(workers=2, rounds=2))
    assert [pace.workload for pace in paces] == [workload.name for workload in WORKLOADS for _ in range(3)]
    assert {pace.program for pace in paces} == {"plain PyTorch loop", "FedRelay, 1 worker", "FedRelay, 2 workers"}
    assert all(0 < pace.best <= pace.median <= pace.worst for pace in paces)


@pytest.mark.slow
def test_another_device_is_measured_beside_all_workers():
    """`cpu:0` is the CPU by another name, which takes the way of other devices: one model after another."""
    paces = list(bench(workers=2, rounds=1, device="cpu:0"))
    programs = ["plain PyTorch loop on cpu:0", "FedRelay on cpu:0", "FedRelay, 2 workers"]
    assert [pace.program for pace in paces] == programs * len(WORKLOADS)


def test_a_device_that_is_not_here_is_refused():
    with pytest.raises(fr.SpecError, match="--device: 'cuda:77' cannot be used here"):
        next(bench(workers=1, rounds=1, device="cuda:77"))
