"""Datasets of the user's own, read batch by batch."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

import fedrelay as fr
from fedrelay.data.dataset_samples import DatasetSamples, join, seeded
from fedrelay.data.public_samples import with_public
from fedrelay.data.samples import Samples
from fedrelay.data.shared_samples import SharedFederation
from fedrelay.robustness.label_flip import FlippedFederation, swap_table

SETTINGS = {"rounds": 2, "fraction": 1.0, "batch_size": 4, "model": "logistic"}


class Augmented(Dataset):
    """Rows with noise from all three global generators. It counts what is read and may fail."""

    def __init__(self, size: int, seed: int, *, noise: float = 0.1, bad: int | None = None) -> None:
        self.x = torch.randn(size, 4, generator=torch.Generator().manual_seed(seed))
        self.targets = [row % 3 for row in range(size)]
        self.noise, self.bad, self.reads = noise, bad, 0

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        self.reads += 1
        if row == self.bad:
            raise OSError("disk\ngone")
        noise = torch.randn(4) + np.random.rand() + random.random()
        return self.x[row] + self.noise * noise, self.targets[row]


class WithoutTargets(Dataset):
    def __init__(self, inner: Augmented) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return self.inner[row]


def federation(*, noise: float = 0.1, bad: int | None = None):
    clients = {f"h{k}": Augmented(8 + k, k, noise=noise, bad=bad if k == 2 else None) for k in range(4)}
    return fr.federate_datasets(clients, Augmented(600, 9, noise=noise))


def sha(method: str, data, **settings) -> str:
    return fr.run(method, data=data, **{**SETTINGS, "workers": 1, **settings}).weights_sha256


def test_datasets_without_transforms_give_the_same_weights_as_arrays_in_memory():
    data = federation(noise=0)
    parts = [data.client_samples(client).load() for client in range(4)]
    test = data.test.load()
    arrays = fr.federate(
        torch.cat([part.x for part in parts]),
        torch.cat([part.y for part in parts]),
        test.x,
        test.y,
        client_ids=np.repeat(range(4), data.sample_counts()),
    )
    plain = {"engine": {"lanes": 1}}
    for method in ("fedavg", "fedseq", "centralized"):
        first, second = (fr.run(method, data=each, **SETTINGS, workers=1, **plain) for each in (data, arrays))
        assert first.weights_sha256 == second.weights_sha256
        assert first.accuracy == second.accuracy


@pytest.mark.parametrize("method", ["fedseq+scaffold", "centralized"])
def test_random_transforms_do_not_depend_on_workers(method):
    data = federation()
    one = sha(method, data)
    assert one == sha(method, data, workers=2)
    assert one != sha(method, federation(noise=0))


def test_every_epoch_and_hop_draws_new_noise():
    samples = federation().client_samples(0)
    first, again, other = (next(samples.pieces(range(8), 8, seed)).x for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_reading_leaves_the_global_generators_as_they_were():
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    with seeded(7):
        drawn = torch.rand(1), np.random.rand(), random.random()
    with seeded(7):
        assert (torch.rand(1), np.random.rand(), random.random()) == drawn
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert random.getstate() == before[2]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_dataset_that_fails_is_named_with_its_sample(workers, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(fr.DataError) as found:
        fr.run("fedavg", data=federation(bad=3), **SETTINGS, workers=workers, out=out)
    assert str(found.value).startswith("client 'h2', sample 3: OSError: disk gone; no round was done")
    assert fr.resume(out, data=federation()).rounds == 2


def test_what_was_done_before_a_failure_is_kept(tmp_path):
    data = federation()

    class BreakAfterRoundOne(fr.Callback):
        def on_round_end(self, context):
            if context.round == 1:
                data.train[1].dataset.dataset.bad = 0

    out = tmp_path / "run"
    settings = {**SETTINGS, "workers": 1}
    with pytest.raises(fr.DataError, match=r"client 'h1', sample 0: .*; continue from the last checkpoint"):
        fr.run("fedavg", data=data, **settings, out=out, checkpoint={"seconds": 0}, callbacks=[BreakAfterRoundOne()])
    data.train[1].dataset.dataset.bad = None
    assert fr.resume(out, data=data).weights_sha256 == sha("fedavg", data)


def test_histograms_come_from_targets_without_reading_samples():
    data = federation()
    before = data.train[1].dataset.dataset.reads
    assert data.histogram(1).tolist() == [3, 3, 3]
    assert data.train[1].dataset.dataset.reads == before


def test_histograms_of_a_dataset_without_targets_are_read_once():
    inner = Augmented(7, 0)
    data = fr.federate_datasets([WithoutTargets(inner)], Augmented(5, 1), classes=3)
    before = inner.reads
    assert data.histogram(0).tolist() == [3, 2, 2]
    assert data.histogram(0).tolist() == [3, 2, 2]
    assert inner.reads == before + 7


def test_a_run_that_needs_no_histogram_reads_only_what_it_trains_on():
    inner = Augmented(8, 0)
    data = fr.federate_datasets([WithoutTargets(inner)], Augmented(5, 1), classes=3)
    before = inner.reads
    fr.run("fedavg", data=data, **SETTINGS, workers=1)
    assert inner.reads == before + 2 * 8


def test_targets_of_subsets_and_joined_datasets_are_found_without_reading():
    inner = Augmented(9, 0)
    part = DatasetSamples(Subset(inner, [4, 2, 0]))
    assert part.targets().tolist() == [1, 2, 0]
    assert join([part, part.select(np.array([1]))]).targets().tolist() == [1, 2, 0, 2]
    assert inner.reads == 0


def test_a_joined_source_in_memory_has_the_rows_in_order():
    one = Samples(torch.tensor([[1.0]]), torch.tensor([0]))
    two = DatasetSamples(TensorDataset(torch.tensor([[2.0], [3.0]]), torch.tensor([1, 0])))
    assert join([one, two]).load().x.tolist() == [[1], [2], [3]]


def test_a_collate_function_makes_the_batches():
    def halve(samples):
        return torch.stack([x for x, _ in samples]) / 2, torch.tensor([y for _, y in samples])

    plain = federation(noise=0).client_samples(0).load()
    data = fr.federate_datasets([Augmented(8, 0, noise=0)], Augmented(5, 1), collate_fn=halve)
    assert torch.equal(data.client_samples(0).load().x, plain.x / 2)


def test_public_shared_and_flipped_samples():
    data = federation(noise=0)
    public = with_public(data, 2, 1)
    assert public.public.y.tolist() == [0, 0, 1, 1, 2, 2]
    assert public.test.size == 594
    shared = SharedFederation(data, 0.25, 1)
    assert shared.pool.size == 8
    assert shared.sample_counts().tolist() == [14, 15, 16, 17]
    assert shared.histogram(0).sum() == 14
    flipped = FlippedFederation(data, {0: swap_table([(0, 2)], 3)})
    assert flipped.client_samples(0).targets().tolist() == [2, 1, 0, 2, 1, 0, 2, 1]
    assert flipped.client_samples(1) is data.client_samples(1)


def test_numbers_as_targets_are_for_regression():
    numbers = TensorDataset(torch.randn(6, 4), torch.randn(6, dtype=torch.float64))
    data = fr.federate_datasets([numbers], numbers)
    assert (data.task, data.class_count, data.target_shape) == ("regression", 0, ())
    assert data.client_samples(0).load().y.dtype == torch.float32


def test_the_fingerprint_tells_datasets_apart():
    assert federation().fingerprint() == federation().fingerprint()
    assert federation().fingerprint() != federation(noise=0).fingerprint()


class Stream(IterableDataset):
    def __iter__(self):
        yield torch.zeros(4), 0


X, Y = torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("train", "options", "message"),
    [
        ([], {}, "train: needs at least one dataset"),
        ([TensorDataset(X[:0], Y[:0])], {}, "train: no client has samples"),
        ([Stream()], {}, r"train\['0'\]: must be a dataset with __getitem__ and __len__, got Stream"),
        ([WithoutTargets(Augmented(3, 0))], {}, "classes: give the number of classes"),
        ({"b": TensorDataset(torch.zeros(4, 3), Y)}, {}, r"client 'b': .* \(3,\) and \(\) per sample, .* \(2,\)"),
        ([TensorDataset(X, Y)], {"classes": 1}, "labels must be 0, 1, … 0"),
        ([TensorDataset(X, Y)], {"collate_fn": lambda samples: samples[0][0]}, "must be a pair"),
        ([TensorDataset(X, Y)], {"collate_fn": lambda samples: samples[9]}, "collate_fn: IndexError"),
        ([TensorDataset(X, Y)], {"collate_fn": lambda samples: (X, Y)}, r"a batch of 1 samples has the shape \[4, 2\]"),
    ],
)
def test_unsuitable_datasets_are_refused_in_one_line(train, options, message):
    with pytest.raises(fr.DataError, match=message) as found:
        fr.federate_datasets(train, TensorDataset(X, Y), **options).client_samples(0).load()
    assert "\n" not in str(found.value)


MEMORY = """
import resource, sys
import numpy as np, torch, fedrelay as fr
from torch.utils.data import Dataset

class OnDisk(Dataset):
    def __init__(self, path, rows):
        self.path, self.rows = path, rows
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, row):
        # Mapped for one sample: pages of a mapping that stays open would count as memory of the process.
        values = np.memmap(self.path, np.float32, "r", shape=(1000, 50_000))[self.rows[row]].copy()
        return torch.from_numpy(values), self.rows[row] % 2

path, workers = sys.argv[1], int(sys.argv[2])
clients = [OnDisk(path, range(start, start + 240)) for start in range(0, 960, 240)]
data = fr.federate_datasets(clients, OnDisk(path, range(960, 1000)), classes=2)
settings = dict(data=data, model="logistic", fraction=1.0, batch_size=8, workers=workers)
def peak():
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
small = fr.federate_datasets([OnDisk(path, range(8))], OnDisk(path, range(960, 968)), classes=2)
fr.run("fedavg", **{**settings, "data": small, "rounds": 1})  # loads everything that any run loads
before = peak()
for method in ("fedseq", "centralized"):
    fr.run(method, rounds=1, **settings)
print((peak() - before) // 1024)
"""


def test_samples_larger_than_memory_stay_on_disk(tmp_path: Path):
    """200 MB on disk, the batches of two methods in memory."""
    path = tmp_path / "samples.dat"
    rows = np.memmap(path, np.float32, "w+", shape=(1000, 50_000))
    rows[:] = np.random.default_rng(0).normal(size=50_000).astype(np.float32)
    rows.flush()
    assert path.stat().st_size == 200_000_000
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(path), "1"], capture_output=True, text=True, check=True, timeout=120
    )
    assert int(done.stdout) < 60  # MB
