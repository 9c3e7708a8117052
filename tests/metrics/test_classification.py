from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.metrics.classification import Scores, confusion, scores


@st.composite
def predictions(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    classes = draw(st.integers(2, 6))
    label = st.integers(0, classes - 1)
    pairs = draw(st.lists(st.tuples(label, label), min_size=1, max_size=40))
    return [true for true, _ in pairs], [predicted for _, predicted in pairs], classes


@given(predictions())
@settings(deadline=None, max_examples=60)
def test_agrees_with_scikit_learn(case: tuple[list[int], list[int], int]) -> None:
    y_true, y_pred, classes = case
    labels = range(classes)
    matrix = confusion(y_true, y_pred, classes)
    assert matrix.dtype == np.int64
    assert np.array_equal(matrix, confusion_matrix(y_true, y_pred, labels=labels))

    macro = precision_recall_fscore_support(y_true, y_pred, labels=labels, average="macro", zero_division=0)
    got = scores(matrix)
    assert (got.precision, got.recall, got.f1) == pytest.approx(macro[:3])
    assert got.accuracy == pytest.approx(accuracy_score(y_true, y_pred))


@given(predictions(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=30)
def test_the_order_of_samples_does_not_matter(case: tuple[list[int], list[int], int], shuffler: Random) -> None:
    y_true, y_pred, classes = case
    order = list(range(len(y_true)))
    shuffler.shuffle(order)
    shuffled = confusion([y_true[i] for i in order], [y_pred[i] for i in order], classes)
    assert np.array_equal(shuffled, confusion(y_true, y_pred, classes))


def test_a_class_that_is_never_predicted_counts_as_zero() -> None:
    got = scores(np.array([[8, 2, 0], [1, 4, 0], [3, 0, 0]]))
    assert got.precision == pytest.approx(0.444444, abs=1e-6)
    assert got.recall == pytest.approx(0.533333, abs=1e-6)
    assert got.f1 == pytest.approx(0.484848, abs=1e-6)
    assert got.accuracy == pytest.approx(0.666667, abs=1e-6)


def test_a_class_absent_from_truth_and_predictions_counts_as_zero() -> None:
    assert scores(confusion([0, 1], [0, 1], classes=4)) == Scores(accuracy=1.0, precision=0.5, recall=0.5, f1=0.5)


def test_rows_are_the_truth() -> None:
    assert confusion([0, 0, 1], [1, 1, 0], classes=2).tolist() == [[0, 2], [1, 0]]


def test_sequences_count_every_position_except_padding() -> None:
    y_true = np.array([[0, 1, IGNORED_LABEL], [1, IGNORED_LABEL, IGNORED_LABEL]])
    y_pred = np.array([[0, 0, 1], [1, 0, 0]])
    assert confusion(y_true, y_pred, classes=2).tolist() == [[1, 0], [1, 1]]


def test_small_integer_types_do_not_overflow() -> None:
    labels = np.full(3, 61, dtype=np.uint8)
    assert confusion(labels, labels, classes=62)[61, 61] == 3


@pytest.mark.parametrize(
    ("y_true", "y_pred", "message"),
    [
        ([0, 1], [0], r"labels of shape \(2,\) and predictions of shape \(1,\) do not match"),
        ([0, 3], [0, 1], r"must be in 0 … 2, got 0 … 3"),
        ([0, 1], [0, -1], r"must be in 0 … 2, got -1 … 1"),
        ([0, 1], [0, 0.5], r"must be whole numbers, got float64"),
    ],
)
def test_impossible_labels_are_refused(y_true: list[int], y_pred: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        confusion(y_true, y_pred, classes=3)


def test_no_samples_have_a_confusion_matrix_but_no_scores() -> None:
    nothing = confusion(np.array([IGNORED_LABEL]), np.array([0]), classes=2)
    assert nothing.tolist() == [[0, 0], [0, 0]]
    with pytest.raises(ValueError, match="cannot compute scores without samples"):
        scores(nothing)
