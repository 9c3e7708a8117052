"""Messages: packed and unpacked, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.engines.flower.messages import (
    BadMessage,
    Message,
    evaluation_from,
    evaluation_header,
    hop_report,
    int_field,
    one_line,
    pack_models,
    profile_vector,
    unpack_models,
)
from fedrelay.local.evaluation import EvaluationSums
from fedrelay.models.flat_layout import FlatLayout

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
    report, seconds = hop_report(Message(said), 5)
    assert (report.samples, report.steps, report.loss, seconds) == (5, 2, 0.5, 0.1)
    refused, _ = hop_report(Message({"refused": "non-finite weights", "seconds": 1}), 5)
    assert (refused.refused, refused.samples) == ("non-finite weights", 0)
    for wrong in ({"samples": 6}, {"steps": -1}, {"loss": float("nan")}, {"seconds": None}):
        with pytest.raises(BadMessage):
            hop_report(Message({**said, **wrong}), 5)


def test_evaluations():
    evaluation = EvaluationSums(3.5, np.array([1, 2]), np.array([2, 3]), np.array([3, 2]))
    back = evaluation_from(Message(json.loads(json.dumps(evaluation_header(evaluation)))), 2, range(5, 6))
    assert (back.loss, back.correct.tolist(), back.actual.tolist()) == (3.5, [1, 2], [3, 2])
    header = evaluation_header(evaluation)
    for wrong in ({"correct": [9, 9]}, {"actual": [1]}, {"predicted": [2.5, 3]}, {"loss": "high"}, {"actual": [30, 2]}):
        with pytest.raises(BadMessage):
            evaluation_from(Message({**header, **wrong}), 2, range(5, 6))
    with pytest.raises(BadMessage, match="it evaluates 5 predictions instead of 7"):
        evaluation_from(Message(header), 2, range(7, 8))
    with pytest.raises(BadMessage, match="its loss is negative"):
        evaluation_from(Message({**header, "loss": -0.1}), 2, range(5, 6))
    assert evaluation_from(Message({**header, "loss": None}), 2, range(1, 9)).loss == float("inf")


@pytest.mark.parametrize(
    "vector", [None, np.zeros((2, 2)), np.zeros(0), np.zeros(9), np.array([np.nan]), np.zeros(2, int)]
)
def test_vectors_that_are_not_accepted(vector):
    with pytest.raises(BadMessage):
        profile_vector(Message({}, {} if vector is None else {"vector": vector}), 8)


def test_text_from_others_is_safe_to_print():
    assert one_line("a\x1b[31m\nb" + "c" * 999, 10) == "a [31m bcc"
