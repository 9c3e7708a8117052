"""Messages: packed and unpacked, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.engines.flower.messages import (
    BadMessage,
    Message,
    evaluation_from,
    evaluation_message,
    hop_report,
    int_field,
    pack_models,
    profile_vector,
    unpack_models,
)
from fedrelay.engines.flower.printable_text import one_line
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.tasks.base import EvaluationSums
from fedrelay.tasks.binary import Binary
from fedrelay.tasks.classification import Classification
from fedrelay.tasks.score_histogram import MOST_BINS, ScoreHistogram

LAYOUT = FlatLayout.of(torch.nn.Linear(2, 1))


@given(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=4, unique=True))
def test_models_come_back_under_their_names(names):
    models = {name: torch.full((3,), float(place)) for place, name in enumerate(names)}
    sent = pack_models({"kind": "hop"}, models)
    back = unpack_models(Message(json.loads(json.dumps(dict(sent.header))), sent.arrays), LAYOUT, names)
    assert {name: model.tolist() for name, model in back.items()} == {n: m.tolist() for n, m in models.items()}


def test_received_models_are_writable():
    array = np.zeros((1, 3), dtype=np.float32)
    array.flags.writeable = False
    assert unpack_models(Message({"names": ["m"]}, {"models": array}), LAYOUT)["m"].add_(1).tolist() == [1.0] * 3


@pytest.mark.parametrize(
    ("header", "array", "message"),
    [
        ({}, np.zeros((1, 3), np.float32), "it has no models"),
        ({"names": ["m"]}, None, "it has no models"),
        ({"names": ["m", "m"]}, np.zeros((2, 3), np.float32), "it has no models"),
        ({"names": ["n"]}, np.zeros((1, 3), np.float32), "its models have other names"),
        ({"names": ["m"]}, np.zeros((1, 4), np.float32), "its models have a wrong shape"),
        ({"names": ["m"]}, np.zeros((2, 3), np.float32), "its models have a wrong shape"),
        ({"names": ["m"]}, np.zeros(3, np.float32), "its models have a wrong shape"),
        ({"names": ["m"]}, np.zeros((1, 3), np.float64), "its models have type float64"),
        ({"names": ["m"]}, np.zeros((1, 3), np.int32), "its models have type int32"),
    ],
)
def test_models_that_are_not_accepted(header, array, message):
    with pytest.raises(BadMessage, match=message):
        unpack_models(Message(header, {} if array is None else {"models": array}), LAYOUT, ["m"])


@given(st.one_of(st.none(), st.booleans(), st.floats(), st.text(), st.integers(max_value=-1), st.lists(st.integers())))
def test_values_that_are_not_whole_numbers(value):
    with pytest.raises(BadMessage):
        int_field({"request": value}, "request")


def test_reports():
    said = {"samples": 5, "steps": 2, "loss": 0.5, "seconds": 0.1}
    report, seconds = hop_report(Message(said), 5, 2, 0.2)
    assert (report.samples, report.steps, report.loss, seconds) == (5, 2, 0.5, 0.1)
    refused, _ = hop_report(Message({"refused": "non-finite weights", "seconds": 1}), 5, 2, 2.0)
    assert (refused.refused, refused.samples) == ("non-finite weights", 0)
    impossible = ({"steps": 3}, {"steps": 2**31}, {"seconds": -0.1}, {"seconds": 61.0})
    for wrong in ({"samples": 6}, {"steps": -1}, {"loss": float("nan")}, {"seconds": None}, *impossible):
        with pytest.raises(BadMessage):
            hop_report(Message({**said, **wrong}), 5, 2, 0.2)


CORRECT, PREDICTED, ACTUAL = np.array([1, 2]), np.array([2, 3]), np.array([3, 2])


def classified(correct=CORRECT, predicted=PREDICTED, actual=ACTUAL, loss=3.5, weight=5):
    return EvaluationSums(loss, weight, {"correct": correct, "predicted": predicted, "actual": actual})


def read_evaluation(message, predictions=range(5, 6), example=None, task=None):
    message = replace(message, header=json.loads(json.dumps(message.header)))
    return evaluation_from(message, task or Classification(), example or classified(), predictions)


def test_evaluations():
    back = read_evaluation(evaluation_message(classified()))
    assert (back.loss, back.weight, {name: each.tolist() for name, each in back.values.items()}) == (
        3.5,
        5,
        {"correct": [1, 2], "predicted": [2, 3], "actual": [3, 2]},
    )
    assert back.values["correct"].dtype == np.int64
    assert read_evaluation(evaluation_message(classified(loss=math.inf))).loss == math.inf
    assert read_evaluation(evaluation_message(replace(classified(loss=math.nan), non_finite=2))).non_finite == 2
    earlier = evaluation_message(classified())
    del earlier.header["non_finite"]
    assert read_evaluation(earlier).non_finite == 0


@pytest.mark.parametrize(
    ("sums", "message"),
    [
        (classified(correct=np.array([9, 9])), "its counts contradict each other"),
        (classified(actual=np.array([1])), r"actual must have the shape \[2\]"),
        (classified(predicted=np.array([2.5, 2.5])), "predicted must be whole numbers"),
        (classified(predicted=np.array([-2, 7])), "predicted must not be negative"),
        (classified(actual=np.array([np.nan, 2])), "its evaluation has no sums"),
        (classified(loss=-0.1), "its loss is negative"),
        (replace(classified(), non_finite=1), "it has a finite loss of outputs that are not"),
        (classified(weight=7), "it evaluates 7 predictions instead of 5"),
        (EvaluationSums(0.0, 5, {}), "correct must have the shape"),
        (EvaluationSums(0.0, 5, {**classified().values, "more": np.zeros(1)}), "it has unknown sums|has unknown sums"),
    ],
)
def test_impossible_evaluations_are_refused(sums, message):
    with pytest.raises(BadMessage, match=message):
        read_evaluation(evaluation_message(sums))


def test_evaluations_without_readable_sums_are_refused():
    message = evaluation_message(classified())
    for header in ({"loss": "high"}, {"weight": None}, {"shapes": None}, {"shapes": [[2], [2]]}, {"shapes": [["x"]]}):
        with pytest.raises(BadMessage):
            read_evaluation(replace(message, header={**message.header, **header}))
    with pytest.raises(BadMessage, match="no sums"):
        read_evaluation(replace(message, arrays={}))


def test_histograms_of_scores_travel_too():
    task, targets = Binary(), torch.tensor([0, 1, 1, 0])
    sums = task.evaluation_sums(torch.tensor([-1.0, 2.0, 0.5, 0.7]), targets)
    back = read_evaluation(evaluation_message(sums), range(4, 5), sums, task)
    assert task.metrics_from_sums(back.values) == task.metrics_from_sums(sums.values)


@pytest.mark.parametrize(
    "histogram",
    [
        ScoreHistogram(np.array([3, 1]), np.array([[2, 0], [0, 2]])),
        ScoreHistogram(np.array([1, 3]), np.array([[-2, 0], [4, 2]])),
        ScoreHistogram(np.array([1, 2**31]), np.array([[2, 0], [0, 2]])),
        ScoreHistogram(np.array([1, 3]), np.array([[2, 0], [0, 2]]), dropped_bits=20),
        ScoreHistogram(np.arange(MOST_BINS + 1), np.zeros((MOST_BINS + 1, 2), np.int64)),
    ],
    ids=["not ascending", "negative", "no float32", "coarser than needed", "too many bins"],
)
def test_impossible_histograms_of_scores_are_refused(histogram):
    """Dropped bits of one node coarsen the histogram of all, so a node may not drop any without need."""
    task, targets = Binary(), torch.tensor([0, 1, 1, 0])
    sums = task.evaluation_sums(torch.tensor([-1.0, 2.0, 0.5, 0.7]), targets)
    wrong = replace(sums, values={**sums.values, "scores": histogram})
    with pytest.raises(BadMessage, match="ascending bins, not coarser than needed"):
        read_evaluation(evaluation_message(wrong), range(4, 5), sums, task)


@pytest.mark.parametrize(
    "vector", [None, np.zeros((2, 2)), np.zeros(0), np.zeros(9), np.array([np.nan]), np.zeros(2, int)]
)
def test_vectors_that_are_not_accepted(vector):
    with pytest.raises(BadMessage):
        profile_vector(Message({}, {} if vector is None else {"vector": vector}), 8)


def test_text_from_others_is_safe_to_print():
    assert one_line("a\x1b[31m\nb" + "c" * 999, 10) == "a [31m bcc"
