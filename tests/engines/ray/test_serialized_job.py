"""Jobs on their way to other processes."""

from __future__ import annotations

import sys
import threading
import types
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from fedrelay.data.torch_dataset_federation import federate_datasets
from fedrelay.engines.ray.serialized_job import bytes_of, pack, tensor_from
from fedrelay.errors import EngineError
from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatLayout

pytest.importorskip("ray", reason="the extra 'ray' is not installed", exc_type=ImportError)


@pytest.fixture
def packed(toy, linear):
    return pack(TrainingJob(linear, FlatLayout.of(linear), toy, TrainSettings(), (), 3))


def test_the_job_comes_out_as_it_went_in(packed, toy, linear):
    job = packed.unpack()
    assert (job.train, job.terms, job.seed, job.layout) == (TrainSettings(), (), 3, FlatLayout.of(linear))
    assert torch.equal(job.layout.flatten(job.module), job.layout.flatten(linear))
    for client in range(6):
        assert all(
            torch.equal(*pair)
            for pair in zip(job.federation.train_samples(client), toy.train_samples(client), strict=True)
        )
    assert job.federation.fingerprint() == toy.fingerprint()


def test_data_are_looked_at_where_they_lie(packed):
    for buffer in packed.buffers:
        buffer.flags.writeable = False  # as in an object store
    federation = packed.unpack().federation
    for array in (federation.test.x.numpy(), federation.train_samples(1).x.numpy(), federation.dataset.x_train):
        assert any(np.shares_memory(array, buffer) for buffer in packed.buffers)


def test_datasets_are_read_where_the_job_is_unpacked(linear):
    rows = TensorDataset(torch.arange(12.0).view(3, 4), torch.tensor([0, 2, 1]))
    federation = federate_datasets({"north": rows, "south": rows}, rows)
    found = pack(TrainingJob(linear, FlatLayout.of(linear), federation, TrainSettings(), (), 3)).unpack().federation
    assert torch.equal(found.train_samples(1).load().x, rows.tensors[0])
    assert found.fingerprint() == federation.fingerprint()


class Tied(torch.nn.Linear):
    """Two buffers in the same memory."""

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.register_buffer("both", torch.zeros(6))
        self.register_buffer("front", self.both[:3])


def test_a_module_can_be_written_to_and_shares_what_it_shared(toy):
    module = Tied()
    job = pack(TrainingJob(module, FlatLayout.of(module), toy, TrainSettings(), (), 3)).unpack()
    job.module.front.fill_(1.0)
    assert job.module.both.tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]


def test_no_two_packed_jobs_have_the_same_key(packed, toy, linear):
    assert packed.key != pack(TrainingJob(linear, FlatLayout.of(linear), toy, TrainSettings(), (), 3)).key


def test_other_software_is_refused(packed):
    old = replace(packed, software={**packed.software, "torch": "1.0"})
    with pytest.raises(EngineError, match=r"has torch \S+ instead of 1\.0; install the same versions on all machines"):
        old.unpack()


class Elsewhere(torch.nn.Linear):
    """A module of a file that is not everywhere."""


def test_code_that_is_not_there_is_named(toy, monkeypatch):
    there = types.ModuleType("somewhere_else")
    there.Elsewhere = Elsewhere
    monkeypatch.setattr(Elsewhere, "__module__", there.__name__)
    monkeypatch.setitem(sys.modules, there.__name__, there)
    module = Elsewhere(4, 3)
    packed = pack(TrainingJob(module, FlatLayout.of(module), toy, TrainSettings(), (), 3))
    monkeypatch.delitem(sys.modules, there.__name__)
    with pytest.raises(
        EngineError, match=r"lacks code that the model or the data need \(No module named 'somewhere_else'\)"
    ):
        packed.unpack()


def test_what_cannot_be_sent_is_said_to_be_so(toy, linear):
    linear.lock = threading.Lock()
    with pytest.raises(EngineError, match=r"^the model or the data cannot be sent to other processes: cannot pickle "):
        pack(TrainingJob(linear, FlatLayout.of(linear), toy, TrainSettings(), (), 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_tensors_of_any_type_become_bytes_and_back(dtype):
    tensor = torch.arange(6).to(dtype).view(2, 3)
    assert torch.equal(tensor_from(bytes_of(tensor), dtype, (2, 3)), tensor)
