"""Predictions of single test samples give the scores that the run reported."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedrelay as fr
from fedrelay.cli import main

RNG = np.random.default_rng(3)
X = RNG.normal(size=(30, 4)).astype(np.float32)
SMALL = {"rounds": 1, "workers": 1, "fraction": 1.0}


def exported(tmp_path, model, data, task=None, **settings):
    """The table of predictions as columns of text, the export, and the last line of metrics."""
    result = fr.run("fedavg", data=data, model=model, task=task, out=tmp_path / "run", **SMALL, **settings)
    own = {"task": task} if isinstance(task, fr.Task) else {}
    found = fr.export(tmp_path / "run", tmp_path / "out", predictions=True, data=data, model=model, **own)
    with found.predictions.open() as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}, found, result.history[-1]


def numbers(column):
    return np.array(column, dtype=float)


def federation(y, **options):
    return fr.federate(X[:20], y[:20], X[20:], y[20:], clients=2, partition="iid", **options)


def test_classes_have_a_prediction_and_probabilities(tmp_path):
    table, found, row = exported(tmp_path, nn.Linear(4, 3), federation(np.arange(30) % 3))
    assert list(table) == [
        "sample", "target", "prediction", "probability",
        *(f"probability_{k}" for k in range(3)), *(f"output_{k}" for k in range(3)),
    ]  # fmt: skip
    assert table["sample"] == [str(number) for number in range(10)]
    outputs = np.stack([numbers(table[f"output_{k}"]) for k in range(3)], axis=1)
    odds = np.exp(outputs)
    probabilities = np.stack([numbers(table[f"probability_{k}"]) for k in range(3)], axis=1)
    np.testing.assert_allclose(probabilities, odds / odds.sum(1, keepdims=True), rtol=1e-6)
    assert numbers(table["prediction"]).tolist() == outputs.argmax(1).tolist()
    assert numbers(table["probability"]).tolist() == probabilities.max(1).tolist()
    assert np.mean(numbers(table["prediction"]) == numbers(table["target"])) == pytest.approx(row["accuracy"])
    assert found.prediction_arrays is None


def test_a_positive_class_has_a_probability(tmp_path):
    table, _, row = exported(tmp_path, nn.Linear(4, 1), federation(np.arange(30) % 2), task="binary")
    assert list(table) == ["sample", "target", "prediction", "probability", "output_0"]
    probability, target = numbers(table["probability"]), numbers(table["target"])
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(-numbers(table["output_0"]))), rtol=1e-6)
    assert np.mean((probability >= 0.5) == target) == pytest.approx(row["accuracy"])
    assert np.mean((probability - target) ** 2) == pytest.approx(row["brier"])


def test_every_label_has_a_probability(tmp_path):
    y = (X[:, :2] > 0).astype(np.float32)
    table, _, row = exported(tmp_path, nn.Linear(4, 2), federation(y, task="multilabel"))
    assert list(table)[1:7] == [
        "target_0",
        "target_1",
        "prediction_0",
        "prediction_1",
        "probability_0",
        "probability_1",
    ]
    right = [numbers(table[f"prediction_{k}"]) == numbers(table[f"target_{k}"]) for k in range(2)]
    assert np.mean(right) == pytest.approx(row["label_accuracy"])
    assert np.array_equal(numbers(table["probability_0"]) >= 0.5, numbers(table["prediction_0"]) == 1)


@pytest.mark.parametrize(("y", "names"), [(X[:, 0], [""]), (X[:, :2], ["_0", "_1"])])
def test_predicted_numbers(tmp_path, y, names):
    table, _, row = exported(tmp_path, nn.Linear(4, len(names)), federation(y))
    assert list(table) == ["sample", *(f"{what}{name}" for what in ("target", "prediction") for name in names)]
    errors = [numbers(table[f"prediction{name}"]) - numbers(table[f"target{name}"]) for name in names]
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(row["rmse"], rel=1e-5)


def test_images_have_scores_and_masks(tmp_path):
    y = RNG.integers(0, 3, (12, 4, 4))
    y[11, :2] = -100  # pixels without a label
    y[10] = -100
    images = RNG.normal(size=(12, 1, 4, 4)).astype(np.float32)
    data = fr.federate(images[:8], y[:8], images[8:], y[8:], clients=2, partition="iid", classes=3)
    table, found, row = exported(tmp_path, nn.Conv2d(1, 3, 1), data)
    assert list(table) == [
        "sample", "pixels", "loss", "dice", "iou", "pixel_accuracy", "dice_0", "dice_1", "dice_2",
    ]  # fmt: skip
    assert table["pixels"] == ["16", "16", "0", "8"]
    assert (table["loss"][2], table["dice"][2]) == ("", "")
    labelled = numbers(table["loss"][:2] + table["loss"][3:])
    assert labelled.mean() == pytest.approx(row["loss"])
    with np.load(found.prediction_arrays) as arrays:
        masks = dict(arrays)
    assert masks["sample"].tolist() == [0, 1, 2, 3]
    assert masks["prediction"].shape == (4, 4, 4)
    assert masks["prediction"].dtype == np.int8
    assert np.array_equal(masks["target"], y[8:])
    kept = masks["target"] != -100
    assert np.mean((masks["prediction"] == masks["target"])[kept]) == pytest.approx(row["pixel_accuracy"])
    first, other = (masks[name][0] for name in ("prediction", "target"))
    dice = [2 * np.sum((first == k) & (other == k)) / (np.sum(first == k) + np.sum(other == k)) for k in range(3)]
    assert [float(table[f"dice_{k}"][0]) for k in range(3)] == pytest.approx(dice)


def test_sequences_have_tokens_loss_and_perplexity(tmp_path):
    tokens = RNG.integers(0, 5, (12, 6))
    y = np.roll(tokens, -1, axis=1)
    y[:, -1] = y[11, 2:] = -100
    data = fr.federate(
        tokens[:8], y[:8], tokens[8:], y[8:], clients=2, partition="iid", classes=5, task="language-model"
    )
    table, _, row = exported(tmp_path, nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5)), data)
    assert list(table) == ["sample", "tokens", "loss", "perplexity", "token_accuracy"]
    assert table["tokens"] == ["5", "5", "5", "2"]
    counts, losses = numbers(table["tokens"]), numbers(table["loss"])
    assert math.exp((counts * losses).sum() / counts.sum()) == pytest.approx(row["perplexity"])
    assert numbers(table["perplexity"]).tolist() == pytest.approx(np.exp(losses).tolist())
    assert (counts * numbers(table["token_accuracy"])).sum() / counts.sum() == pytest.approx(row["token_accuracy"])


def test_a_label_at_every_position_is_scored_by_sequence(tmp_path):
    tokens = RNG.integers(0, 5, (12, 6))
    data = fr.federate(tokens[:8], tokens[:8], tokens[8:], tokens[8:], clients=2, partition="iid", classes=5)
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5))
    table, _, row = exported(tmp_path, model, data, task="classification")
    assert list(table)[:4] == ["sample", "positions", "loss", "accuracy"]
    assert numbers(table["accuracy"]).mean() == pytest.approx(row["accuracy"])


def test_a_task_of_the_users_own_has_targets_outputs_and_metrics(tmp_path):
    task = fr.CustomTask(
        loss=lambda outputs, targets: (outputs[:, 0] - targets).abs().mean(),
        metrics_of={"close": lambda outputs, targets: ((outputs[:, 0] - targets).abs() < 1).float()},
        higher_is_better=("close",),
    )
    table, _, row = exported(tmp_path, nn.Linear(4, 1), federation(X[:, 0]), task)
    assert list(table) == ["sample", "target", "output_0", "close"]
    assert numbers(table["close"]).mean() == pytest.approx(row["close"])


def test_samples_are_numbered_as_in_the_test_set_of_the_data(tmp_path):
    table, _, _ = exported(tmp_path, nn.Linear(4, 3), federation(np.arange(30) % 3), public=2)
    assert len(table["sample"]) == 4
    targets = (np.arange(30) % 3)[20:]
    assert table["target"] == [str(targets[int(number)]) for number in table["sample"]]


def test_rows_of_a_table_have_their_id_and_client(tmp_path, monkeypatch):
    lines = [f"P{row},{row % 7},{'north' if row % 3 else 'south'},{'yes' if row % 2 else 'no'}" for row in range(30)]
    (tmp_path / "patients.csv").write_text("\n".join(["patient,age,hospital,ill", *lines]))
    monkeypatch.chdir(tmp_path)
    roles = ["table.target=ill", "table.client=hospital", "table.id=patient"]
    settings = [word for role in roles for word in ("--set", role)]
    assert main(["run", "fedavg", "--data", "patients.csv", *settings, "--rounds", "1", "--out", "run", "-q"]) == 0
    assert main(["export", "run", "--predictions", "--out", "out", "-q"]) == 0
    with Path("out/predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:8] == [
        "sample", "row", "id", "client", "target_label", "prediction_label", "target", "prediction",
    ]  # fmt: skip
    for found in rows:
        number = int(found["row"]) - 1
        assert lines[number].split(",")[0] == found["id"]
        assert lines[number].split(",")[2:] == [found["client"], found["target_label"]]
        assert found["target"] == {"no": "0", "yes": "1"}[found["target_label"]]


class Failing(fr.CustomTask):
    def sample_columns(self, outputs, targets):
        return {"half": 1 / 0}


def test_a_failing_table_of_the_users_own_is_named_in_one_line(tmp_path):
    task = Failing(loss=lambda outputs, targets: (outputs[:, 0] - targets).abs().mean())
    with pytest.raises(fr.SpecError, match=r"^task 'Failing', sample_columns: ZeroDivisionError: division by zero"):
        exported(tmp_path, nn.Linear(4, 1), federation(torch.from_numpy(X[:, 0])), task)
