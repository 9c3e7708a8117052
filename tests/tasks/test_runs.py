"""Tasks other than classification, from the data to the last round."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import fedrelay as fr
from fedrelay.data.public_samples import FederationWithPublicSamples
from fedrelay.errors import DataError, SpecError
from fedrelay.tasks.binary import Binary
from fedrelay.tasks.classification import Classification

CLIENTS = 8


def federation(task: str) -> fr.Federation:
    """Eight clients with targets that follow from the features."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 4)).astype(np.float32)
    numbers = x @ rng.normal(size=(4, 3))
    y = {
        "regression": numbers[:, 0],
        "binary": (numbers[:, 0] > 0).astype(np.int64),
        "multilabel": (numbers > 0).astype(np.int64),
    }[task]
    return fr.federate(x[:160], y[:160], x[160:], y[160:], clients=CLIENTS, partition="iid", task=task)


SMALL = {"rounds": 3, "fraction": 0.5, "batch_size": 5, "lr": 0.1}
HEADLINES = {"regression": "rmse", "binary": "auroc", "multilabel": "f1_macro"}
CONSTANT = {"regression": 2.35, "binary": 0.5, "multilabel": 0.76}
"""The scores of a model that always gives the best constant answer: the mean, and every label."""


@pytest.mark.parametrize("task", HEADLINES)
@pytest.mark.parametrize("method", ["fedavg", "fedseq", "spfl", "fedgsp"])
def test_every_task_with_every_kind_of_route(task, method):
    data = federation(task)
    results = [fr.run(method, data=data, workers=workers, **SMALL) for workers in (1, 2)]
    assert results[0].weights_sha256 == results[1].weights_sha256
    score = results[0].history[-1][HEADLINES[task]]
    assert score < CONSTANT[task] / 5 if task == "regression" else score > CONSTANT[task] + 0.05


def test_without_classes_groups_are_formed_at_random_and_the_log_says_so(caplog):
    fr.run("fedseq", data=federation("regression"), workers=1, **SMALL)
    assert "no classes" not in caplog.text  # its groups are random anyway
    for method in ("fedgsp", "fedseq2par"):
        caplog.clear()
        result = fr.run(method, data=federation("regression"), workers=1, **SMALL)
        assert "own data has no classes: groups are formed at random" in caplog.text
        assert result.history[-1]["client_updates"] > 0


@pytest.mark.parametrize(
    ("method", "task", "settings", "message"),
    [
        ("fedseq", "regression", {"grouping": {"assign": "greedy"}}, "grouping.profile: 'hist' needs classes"),
        ("fedseq", "regression", {"grouping": {"assign": "kmeans", "profile": "counts"}}, "'counts' needs classes"),
        ("fedseq", "regression", {"grouping": {"assign": "kmeans", "profile": "conf"}}, "'conf' fits the task class"),
        ("fedseq", "binary", {"grouping": {"assign": "greedy", "profile": "conf"}}, "'conf' fits the task class"),
        ("feddisco", "regression", {}, "weights clients by their classes, but 'own data' has none"),
        ("fedavg+glam", "regression", {}, "Glam of 'fedavg.glam' fits the tasks classification, language-model"),
        ("fedavg+glam", "binary", {}, "not 'binary'"),
        ("fedavg+ewc", "regression", {"terms": {"fisher": {"labels": "model"}}}, "not 'regression'"),
        ("fedavg", "regression", {"eval": {"classes": [0]}}, "eval.classes: fits the task classification"),
        ("fedavg", "binary", {"eval": {"classes": [0]}}, "eval.classes: fits the task classification, not 'binary'"),
        ("fedavg", "binary", {"attack": {"name": "label-flip", "swap": [0, 1]}}, "attack: swaps the labels of classes"),
        ("fedavg", "multilabel", {"attack": {"name": "label-flip", "swap": [0, 1]}}, "not 'multilabel'"),
        ("fedavg", "regression", {"task": "binary"}, "task 'binary': needs class labels"),
        ("fedavg", "regression", {"task": "classification"}, "task 'classification': needs class labels"),
        ("fedavg", "binary", {"task": "regression"}, "'own data' has class labels"),
        ("fedavg", "regression", {"model": torch.nn.Linear(4, 3)}, r"must return outputs of shape \(2, 1\)"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(method, task, settings, message):
    with pytest.raises((SpecError, DataError), match=message) as refused:
        fr.run(method, data=federation(task), workers=1, **SMALL, **settings)
    assert "\n" not in str(refused.value)


def test_images_without_one_class_per_sample_have_no_task2vec():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 1, 8, 8)).astype(np.float32), rng.normal(size=40)
    data = fr.federate(x[:30], y[:30], x[30:], y[30:], clients=3, partition="iid")
    with pytest.raises(SpecError, match="'t2v' needs one class per sample"):
        fr.run("fedseq", data=data, grouping={"assign": "kmeans", "profile": "t2v"}, workers=1, **SMALL)


def test_profiles_that_need_no_classes_group_numbers():
    settings = {"assign": "kmeans", "profile": "weights", "clusters": 2}
    assert fr.run("fedseq", data=federation("regression"), grouping=settings, workers=1, **SMALL).complete


def test_public_samples_without_classes_are_that_many_in_all():
    result = fr.run("fedavg", data=federation("regression"), guard={"tolerance": 0.5}, workers=1, **SMALL)
    assert result.complete
    plan = FederationWithPublicSamples(federation("regression"), 6, seed=1)
    assert (len(plan.public.y), len(plan.test.y)) == (6, 34)
    again = FederationWithPublicSamples(federation("regression"), 6, seed=1)
    assert torch.equal(plan.public.x, again.public.x)


def test_ewc_uses_the_targets_of_any_task_and_draws_labels_of_classes(small):
    assert fr.run("fedavg+ewc", data=federation("regression"), workers=1, **SMALL).complete
    assert fr.run("fedavg+ewc", terms={"fisher": {"labels": "model"}}, **small).complete


@pytest.mark.parametrize("task", [{"class_weights": "balanced"}, Classification(class_weights="balanced")], ids=str)
def test_balanced_weights_cost_a_histogram_of_every_client(task, small, tmp_path):
    fr.run("fedavg", task=task, out=tmp_path / "run", **small)
    [setup, *_] = map(json.loads, (tmp_path / "run" / "ledger.jsonl").read_text().splitlines())
    assert (setup["round"], setup["c2s"]) == (0, 20)


def test_balanced_binary_weights_are_counted_too(tmp_path):
    fr.run("fedavg", data=federation("binary"), task=Binary(class_weights="balanced"), out=tmp_path / "r", **SMALL)
    [setup, *_] = map(json.loads, (tmp_path / "r" / "ledger.jsonl").read_text().splitlines())
    assert (setup["round"], setup["c2s"]) == (0, CLIENTS)
