from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedrelay.data.federation import ArrayFederation
from fedrelay.data.partition import ClientIndices
from fedrelay.data.registry import DATASETS, load_dataset
from fedrelay.errors import SpecError
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment
from fedrelay.grouping.distances import DISTANCES
from fedrelay.grouping.profiles import probe_network as probes
from fedrelay.grouping.profiles import task2vec
from fedrelay.grouping.profiles.probe_network import ImageAdapter, ResNet18Features, read_resnet18
from fedrelay.runtime.recorder import setup_files


def profiled(workers=1, federation=None, settings=None, probe="digits"):
    grouping = {"grouping.assign": "greedy", "grouping.profile": "t2v", "grouping.probe": probe}
    settings = {"data": "digits", "clients": 6, "alpha": 0, **(settings or {}), "engine.workers": workers}
    return prepare(experiment("fedseq", **settings, **grouping), federation=federation)


@pytest.fixture
def quick(monkeypatch):
    """A probe that has seen little, and classifiers that are hardly fitted: the numbers matter, not their sense."""
    monkeypatch.setattr(probes, "SAMPLES_SEEN", 500)
    monkeypatch.setattr(task2vec, "BATCHES", 2)


def digits_of(*rows):
    """Clients that hold exactly these digits."""
    indices, offsets = np.concatenate(rows), np.cumsum([0, *map(len, rows)])
    return ArrayFederation(load_dataset("digits"), ClientIndices(indices, offsets), seed=1)


def same_and_different(run):
    """Mean distance of clients with the same class, of those with different ones, and whose nearest is of its class."""
    vectors = run.prepared.profiling.vectors
    held = np.array([run.prepared.federation.histogram(client).argmax() for client in range(len(vectors))])
    gaps = np.stack([DISTANCES["norm-cosine"](vector, vectors) for vector in vectors])
    alike, others = held[:, None] == held[None], ~np.eye(len(held), dtype=bool)
    nearest = np.where(others, gaps, np.inf).argmin(axis=1)
    return gaps[alike & others].mean(), gaps[~alike].mean(), (held[nearest] == held).mean()


@pytest.mark.slow
def test_clients_of_the_same_class_are_close():
    classes = load_dataset("digits").y_train
    pairs = [np.flatnonzero(classes == each)[begin::2][:40] for each in range(3) for begin in (0, 1)]
    same, different, nearest = same_and_different(profiled(2, digits_of(*pairs)))
    assert same < 0.7 * different
    assert nearest == 1


@pytest.mark.skipif(
    "FEDRELAY_DATA" not in os.environ or not all(DATASETS[name].find() for name in ("mnist", "fashion-mnist")),
    reason="MNIST and Fashion-MNIST are not there",
)
@pytest.mark.slow
def test_a_probe_that_knows_digits_tells_clothes_apart(monkeypatch):
    monkeypatch.setattr(probes, "SAMPLES_SEEN", 3_000)
    monkeypatch.setattr(task2vec, "BATCHES", 10)
    clothes = load_dataset("fashion-mnist")
    pairs = [np.flatnonzero(clothes.y_train == each)[begin::2][:40] for each in (0, 1, 8) for begin in (0, 1)]
    federation = ArrayFederation(
        clothes, ClientIndices(np.concatenate(pairs), np.cumsum([0, *map(len, pairs)])), seed=1
    )
    same, different, nearest = same_and_different(profiled(2, federation, probe="mnist"))
    assert same < 0.7 * different
    assert nearest == 1


def test_the_number_of_workers_changes_nothing(quick):
    alone, together = profiled(1), profiled(2)
    np.testing.assert_array_equal(alone.prepared.profiling.vectors, together.prepared.profiling.vectors)
    assert (alone.prepared.profiling.vectors >= 0).all()
    assert alone.prepared.profiling.vectors.shape == (6, 8 + 16 + 64)


def test_the_probe_goes_to_every_client_and_a_vector_comes_back(quick):
    run = profiled()
    line, probe = run.costs.setup_line(), run.prepared.profiling.probe
    size = 4 * sum(tensor.numel() for tensor in probe.values())
    assert line["payloads"] == {"probe": 6 * size, "profile": 6 * 88 * 4}
    assert (line["s2c"], line["c2s"], line["c2c"], line["client_updates"]) == (6, 6, 0, 0)
    assert line["virtual_seconds"] > line["computing_seconds"] > 0
    assert set(setup_files(run.prepared)) == {"profiles.safetensors", "probe.safetensors", "class_counts.npz"}


def test_clients_with_equal_data_have_equal_vectors(quick):
    rows = np.arange(30)
    vectors = profiled(federation=digits_of(rows, rows, rows[:12], rows[:0])).prepared.profiling.vectors
    assert vectors.shape == (3, 88)  # nobody describes a client without data
    np.testing.assert_array_equal(vectors[0], vectors[1])
    assert not np.array_equal(vectors[0], vectors[2])


def test_every_class_is_drawn_as_often_as_any_other():
    labels = torch.tensor([0] * 90 + [3] * 9 + [5])
    drawn = labels[task2vec.balanced_draw(labels, 30_000, 1, "fit")].bincount(minlength=6)
    assert drawn[[1, 2, 4]].sum() == 0
    assert ((drawn[[0, 3, 5]] - 10_000).abs() < 500).all()


def test_the_classifier_is_fitted_as_adam_would(monkeypatch):
    monkeypatch.setattr(task2vec, "BATCHES", 3)
    rng = torch.Generator().manual_seed(0)
    features, labels = torch.randn(20, 5, generator=rng), torch.randint(0, 3, (20,), generator=rng)
    found = task2vec.fit_classifier(features, labels, 3, seed=1)
    monkeypatch.setattr(task2vec, "STEP_SIZE", 0.0)
    start = task2vec.fit_classifier(features, labels, 3, seed=1)
    classifier = nn.Linear(5, 3)
    classifier.load_state_dict({"weight": start[:, :-1], "bias": start[:, -1]})
    adam = torch.optim.Adam(classifier.parameters(), lr=4e-4, weight_decay=1e-4)
    for rows in torch.split(task2vec.balanced_draw(labels, 10 * 3 * 64, 1, "fit"), 64):
        adam.zero_grad()
        nn.functional.cross_entropy(classifier(features[rows]), labels[rows]).backward()
        adam.step()
    torch.testing.assert_close(found[:, :-1], classifier.weight.detach(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found[:, -1], classifier.bias.detach(), rtol=1e-4, atol=1e-6)


def test_images_are_made_to_fit():
    grey = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    adapter = ImageAdapter((3, 64, 64), mean=0.5, deviation=2.0)
    seen = adapter(grey)
    assert seen.shape == (4, 3, 64, 64)
    assert torch.equal(seen[:, 0], seen[:, 2])
    assert torch.equal(ImageAdapter((1, 28, 28), 0.5, 2.0)(grey), (grey - 0.5) / 2)
    colours = torch.tensor([1.0, 2.0, 6.0]).view(1, 3, 1, 1).expand(1, 3, 8, 8)
    assert torch.equal(ImageAdapter((1, 4, 4), 0.0, 1.0)(colours), torch.full((1, 1, 4, 4), 3.0))


@pytest.fixture
def weights():
    """A ResNet-18 with the names and shapes of torchvision's."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        state = ResNet18Features().state_dict()
    return {**state, "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}


def test_a_resnet18_has_the_names_of_torchvision(weights):
    assert (
        sum(each.numel() for name, each in weights.items() if "running" not in name and "num" not in name) == 11_689_512
    )
    assert "layer2.0.downsample.1.running_var" in weights
    assert "layer1.0.downsample.0.weight" not in weights
    assert len(weights) == 122


@pytest.mark.parametrize("ending", ["safetensors", "pt", "pth"])
def test_a_resnet18_from_a_file(tmp_path, weights, ending):
    file = tmp_path / f"resnet18.{ending}"
    if ending == "safetensors":
        save_file(weights, file)
    else:
        torch.save(weights, file)
    module = read_resnet18(file).module
    assert torch.equal(module.state_dict()["layer4.1.conv2.weight"], weights["layer4.1.conv2.weight"])
    assert module(torch.zeros(2, 3, 64, 64)).shape == (2, 512)


@pytest.mark.slow
def test_a_resnet18_looks_at_clients(tmp_path, weights, quick, monkeypatch):
    monkeypatch.setattr(task2vec, "BATCH", 4)
    save_file(weights, tmp_path / "resnet18.safetensors")
    monkeypatch.chdir(tmp_path)
    run = profiled(federation=digits_of(np.arange(4), np.arange(4, 8)), probe="resnet18.safetensors")
    assert run.prepared.profiling.vectors.shape == (
        2,
        2 * 4800,
    )  # as many filters of convolutions as weights of BatchNorm
    assert run.prepared.experiment.grouping["probe"] == str(tmp_path / "resnet18.safetensors")
    assert torch.equal(run.prepared.profiling.probe["conv1.weight"], weights["conv1.weight"])


def damaged(weights, change):
    found = dict(weights)
    if change == "missing":
        del found["layer3.0.bn1.bias"]
    elif change == "shape":
        found["conv1.weight"] = torch.zeros(64, 3, 3, 3)
    elif change == "more":
        found["layer1.2.conv1.weight"] = torch.zeros(64, 64, 3, 3)
    elif change == "finite":
        found["bn1.weight"] = torch.full((64,), torch.nan)
    return found


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("missing", "layer3.0.bn1.bias is missing"),
        ("shape", r"conv1.weight has shape \(64, 3, 3, 3\), not \(64, 3, 7, 7\)"),
        ("more", "unexpected layer1.2.conv1.weight"),
        ("finite", "bn1.weight has non-finite values"),
    ],
)
def test_another_network_is_refused(tmp_path, weights, change, reason):
    file = tmp_path / "other.safetensors"
    save_file(damaged(weights, change), file)
    with pytest.raises(SpecError, match=rf"grouping.probe: .*other.safetensors is not a ResNet-18.*{reason}"):
        profiled(probe=str(file))


class Malice:
    def __reduce__(self):
        return os.mkdir, ("gotcha",)


def test_files_that_are_no_weights_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.safetensors").write_text("hello")
    (tmp_path / "text.pt").write_text("hello")
    torch.save({"state_dict": {}}, tmp_path / "nested.pt")
    torch.save(Malice(), tmp_path / "malice.pth")
    for name in ("text.safetensors", "text.pt", "malice.pth"):
        with pytest.raises(SpecError, match=f"grouping.probe: .*{name} cannot be read as weights"):
            profiled(probe=name)
    with pytest.raises(SpecError, match="it does not contain named tensors"):
        profiled(probe="nested.pt")
    with pytest.raises(SpecError, match=r"grouping.probe: file not found: .*gone.pt"):
        profiled(probe="gone.pt")
    assert not (tmp_path / "gotcha").exists()


def test_unfit_data_sets_are_refused(tmp_path):
    with pytest.raises(SpecError, match=r"grouping.probe: unknown data set 'mnits' \(did you mean 'mnist'\?\)"):
        profiled(probe="mnits")
    rows = np.zeros((4, 2), dtype=np.float32)
    np.savez(tmp_path / "rows.npz", x_train=rows, y_train=np.arange(4), x_test=rows, y_test=np.arange(4))
    with pytest.raises(SpecError, match=r"grouping.probe: needs an image data set, but .* is tabular"):
        profiled(probe=str(tmp_path / "rows.npz"))
