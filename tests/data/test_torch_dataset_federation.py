"""Datasets of the user's own, read batch by batch."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

import fedrelay as fr
from fedrelay.data.lazy_dataset_samples import LazyDatasetSamples, join, seeded
from fedrelay.data.public_samples import with_public
from fedrelay.data.samples import Samples
from fedrelay.data.shared_samples import FederationWithSharedSamples
from fedrelay.robustness.label_flip import LabelFlippedFederation, swap_table

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
    parts = [data.train_samples(client).load() for client in range(4)]
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
    samples = federation().train_samples(0)
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
    part = LazyDatasetSamples(Subset(inner, [4, 2, 0]))
    assert part.targets().tolist() == [1, 2, 0]
    assert join([part, part.select(np.array([1]))]).targets().tolist() == [1, 2, 0, 2]
    assert inner.reads == 0


def test_a_joined_source_in_memory_has_the_rows_in_order():
    one = Samples(torch.tensor([[1.0]]), torch.tensor([0]))
    two = LazyDatasetSamples(TensorDataset(torch.tensor([[2.0], [3.0]]), torch.tensor([1, 0])))
    assert join([one, two]).load().x.tolist() == [[1], [2], [3]]


def test_a_collate_function_makes_the_batches():
    def halve(samples):
        return torch.stack([x for x, _ in samples]) / 2, torch.tensor([y for _, y in samples])

    plain = federation(noise=0).train_samples(0).load()
    data = fr.federate_datasets([Augmented(8, 0, noise=0)], Augmented(5, 1), collate_fn=halve)
    assert torch.equal(data.train_samples(0).load().x, plain.x / 2)


def test_public_shared_and_flipped_samples():
    data = federation(noise=0)
    public = with_public(data, 2, 1)
    assert public.public.y.tolist() == [0, 0, 1, 1, 2, 2]
    assert public.test.size == 594
    shared = FederationWithSharedSamples(data, 0.25, 1)
    assert shared.pool.size == 8
    assert shared.sample_counts().tolist() == [14, 15, 16, 17]
    assert shared.histogram(0).sum() == 14
    flipped = LabelFlippedFederation(data, {0: swap_table([(0, 2)], 3)})
    assert flipped.train_samples(0).targets().tolist() == [2, 1, 0, 2, 1, 0, 2, 1]
    assert flipped.train_samples(1) is data.train_samples(1)


def test_numbers_as_targets_are_for_regression():
    numbers = TensorDataset(torch.randn(6, 4), torch.randn(6, dtype=torch.float64))
    data = fr.federate_datasets([numbers], numbers)
    assert (data.task, data.class_count, data.target_shape) == ("regression", 0, ())
    assert data.train_samples(0).load().y.dtype == torch.float32


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
        fr.federate_datasets(train, TensorDataset(X, Y), **options).train_samples(0).load()
    assert "\n" not in str(found.value)


GOOD = [(torch.zeros(2), label % 2) for label in range(6)]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ((torch.zeros(2), 0.5), "targets: labels must be 0, 1, … 1, got 0.5"),
        ((torch.zeros(2), 7), "targets: labels must be 0, 1, … 1, got 7"),
        ((torch.zeros(2), -1), "targets: labels must be 0, 1, … 1, got -1"),
        ((torch.zeros(2), "cat"), "targets: must be numbers or a tensor, got text, such as 'cat'"),
        (
            (torch.zeros(3), 1),
            "is (Tensor of shape [3], int), but other samples are (Tensor of shape [2], int); make all alike, or give "
            "collate_fn",
        ),
    ],
    ids=["half a label", "label too large", "negative label", "text", "another shape"],
)
def test_a_bad_sample_is_named_with_its_owner(bad, message):
    train = {"north": GOOD, "south": [*GOOD[:3], bad, *GOOD[3:]]}
    federation = fr.federate_datasets(train, GOOD, classes=2)
    for samples in (federation.train_samples(1), federation.train_samples(1).select(np.array([4, 2, 3, 0]))):
        with pytest.raises(fr.DataError) as found:
            samples.load()
        assert str(found.value) == f"client 'south', sample 3: {message}"


def test_a_sample_without_an_input_of_the_others_is_named():
    good = [({"a": torch.zeros(2), "b": torch.zeros(1)}, label % 2) for label in range(6)]
    federation = fr.federate_datasets({"north": [*good, ({"a": torch.zeros(2)}, 1)]}, good, classes=2)
    with pytest.raises(fr.DataError, match=r"^client 'north', sample 6: is \({'a': Tensor of shape \[2\]}, int\), but"):
        federation.train_samples(0).load()


def test_a_bad_label_is_named_behind_a_function_of_the_users_own():
    def pairs(samples):
        return torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples])

    bad = [*GOOD[:3], (torch.zeros(2), 7)]
    federation = fr.federate_datasets({"north": bad}, GOOD, classes=2, collate_fn=pairs)
    with pytest.raises(fr.DataError, match=r"^client 'north', sample 3: targets: labels must be 0, 1, … 1, got 7$"):
        federation.train_samples(0).load()


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


@pytest.mark.slow
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


# Several inputs


class Parts(Dataset):
    """The rows of `Augmented`, in two parts."""

    def __init__(self, size: int, seed: int, form: str) -> None:
        self.rows, self.form = Augmented(size, seed, noise=0), form
        self.targets = self.rows.targets

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int):
        x, y = self.rows[row]
        forms = {"tensor": x, "tuple": (x[:1], x[1:]), "dict": {"rest": x[1:], "first": x[:1]}}
        return forms[self.form], y


class Joined(torch.nn.Module):
    """A linear model for all three forms; its logits come as a tensor, in an object or in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        with torch.no_grad():
            self.linear.weight.copy_(torch.linspace(-1, 1, 12).view(3, 4))
            self.linear.bias.zero_()

    def forward(self, first, rest=None):
        logits = self.linear(first if rest is None else torch.cat([first, rest], dim=1))
        if rest is None:
            return logits
        return {"logits": logits} if len(first) % 2 else SimpleNamespace(logits=logits)


def in_parts(form: str):
    return fr.federate_datasets([Parts(8 + k, k, form) for k in range(4)], Parts(30, 9, form))


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedseq", {"workers": 2}),
        ("centralized", {}),
        ("spfl+glam", {}),
        ("fedavg+moon", {"terms": {"contrast": {"projection": 0}}}),
        ("fedavg+ewc", {"terms": {"fisher": {"labels": "model"}}}),
        ("fedavg", {"attack": {"name": "label-flip", "swap": [0, 1], "group_share": 0.5, "client_share": 0.5}}),
        ("shared-raw+fedavg", {"warmup": {"pretrain": 1, "ratio": 0.25}}),
        ("fedseq", {"grouping": {"assign": "greedy", "profile": "conf", "epochs": 1}, "public": 1, "validation": 0.2}),
    ],
)
def test_several_inputs_give_the_same_weights_as_one_tensor(method, settings):
    found = []
    for form in ("tensor", "tuple", "dict"):
        settings = {**SETTINGS, "workers": 1, "clock": {"profile": "fedgsp"}, **settings}
        run = fr.run(method, **{**settings, "data": in_parts(form), "model": Joined()})
        found.append((run.weights_sha256, run.accuracy, run.bytes, run.virtual_seconds))
    assert found[0] == found[1] == found[2]


def test_several_inputs_have_named_shapes_and_keep_their_types():
    sample = {"ids": torch.arange(6, dtype=torch.int32), "mask": torch.ones(6, dtype=torch.bool), "age": 3.5}
    data = fr.federate_datasets([[(sample, 1)]], [(sample, 0)], classes=2)
    assert (data.kind, data.sample_shape) == ("multi-input", {"ids": (6,), "mask": (6,), "age": ()})
    x = data.train_samples(0).load().x
    assert {name: each.dtype for name, each in x.items()} == {
        "ids": torch.int64,
        "mask": torch.bool,
        "age": torch.float32,
    }
    renamed = {"tokens" if name == "ids" else name: each for name, each in sample.items()}
    assert data.fingerprint() == fr.federate_datasets([[(sample, 1)]], [(sample, 0)], classes=2).fingerprint()
    assert data.fingerprint() != fr.federate_datasets([[(renamed, 1)]], [(renamed, 0)], classes=2).fingerprint()


def padded(samples):
    """A batch of texts, as long as the longest of them."""
    longest = max(len(text) for text, _ in samples)
    ids = torch.tensor([text + [0] * (longest - len(text)) for text, _ in samples])
    return {"ids": ids, "mask": ids > 0}, torch.tensor([label for _, label in samples])


class MeanOfWords(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = torch.nn.Embedding(5, 3), torch.nn.Linear(3, 2)

    def forward(self, ids, mask):
        weights = mask.unsqueeze(-1).float()
        return self.out((self.words(ids) * weights).sum(1) / weights.sum(1))


def test_batches_may_be_padded_to_their_longest_sample():
    texts = [([1, 2], 0), ([3], 1), ([1, 4, 2, 2], 0), ([3, 3, 1], 1)]
    data = fr.federate_datasets([texts, texts[::-1]], texts, collate_fn=padded, classes=2)
    settings = {**SETTINGS, "batch_size": 2, "workers": 1, "model": MeanOfWords, "clock": {"profile": "fedgsp"}}
    assert fr.run("fedseq", data=data, **settings).rounds == 2
    with pytest.raises(fr.DataError, match="inputs: batches of different shapes cannot be joined"):
        join([Samples(*padded(texts[:1])), Samples(*padded(texts[1:]))])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"model": None},
            "model: 'own data' has several inputs, which no built-in model takes; use a model of your own",
        ),
        (
            {"model": "mlp"},
            "model: 'own data' has several inputs, which no built-in model takes; use a model of your own",
        ),
        (
            {"model": torch.nn.Linear(4, 3)},
            r"model: does not accept samples of shape \{'rest': \(3,\), 'first': \(1,\)\}",
        ),
        (
            {"grouping": {"assign": "greedy", "profile": "t2v"}},
            "'t2v' needs images, but the samples of 'own data' are multi-input",
        ),
    ],
)
def test_what_needs_one_input_is_refused_in_one_line(settings, message):
    with pytest.raises(fr.SpecError, match=message) as found:
        fr.run("fedseq", data=in_parts("dict"), **{"model": Joined(), "rounds": 1, "workers": 1, **settings})
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("client", "options", "message"),
    [
        ([({"a": X[0], "c": X[0]}, 0)], {}, r"client '0': .* the shapes \{'a': \(2,\), 'c': \(2,\)\} and \(\) per"),
        ([((X[0], X[0]), 0)], {}, r"client '0': .* the shapes \(\(2,\), \(2,\)\) and \(\) per sample"),
        ([({"a": X[0], "b": X}, 0)], {}, r"client '0': .*'b': \(4, 2\)"),
        ([({"a": X[0], "b": X[0]}, 0)], {"kind": "image"}, "kind: has no effect, because samples have several inputs"),
        ([({1: X[0]}, 0)], {}, "inputs: must be a tensor, or a tuple or a dict of tensors, got dict"),
        ([({"a": X[0], "b": {"c": X[0]}}, 0)], {}, r"inputs\['b'\]: must be a tensor, got dict"),
        ([({"a": X[0], "b": X[0]}, 0)], {"collate_fn": lambda rows: ({"a": X}, Y[:1])}, r"inputs\['a'\]: a batch of 1"),
    ],
)
def test_unsuitable_inputs_are_refused_in_one_line(client, options, message):
    with pytest.raises(fr.DataError, match=message) as found:
        fr.federate_datasets([client], [({"a": X[0], "b": X[0]}, 0)], classes=2, **options)
    assert "\n" not in str(found.value)


def test_three_labels_are_not_binary():
    rows = TensorDataset(torch.randn(6, 3), torch.arange(6) % 3)
    with pytest.raises(fr.DataError, match=r"^classes: the task binary has 2, 0 and 1, got 3; set classes=2, or"):
        fr.federate_datasets({"a": rows}, test=rows, task="binary")
