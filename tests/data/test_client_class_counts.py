from __future__ import annotations

import numpy as np
import pytest

from fedrelay.api import load_data
from fedrelay.data import client_class_counts
from fedrelay.data.client_class_counts import ClientClassCounts, count_classes
from fedrelay.report.terminal.listings import _edges


def test_one_class_per_client():
    report = count_classes(load_data("digits", clients=10, alpha=0))
    facts = report.summary()
    assert facts["classes_per_client"] == {"min": 1, "median": 1.0, "max": 1}
    assert facts["median_cpd"] == pytest.approx(2 * (1 - np.exp(-1)))
    assert facts["samples"] == 1438 == report.counts.sum()


def test_of_very_many_clients_some_are_counted(monkeypatch):
    monkeypatch.setattr(client_class_counts, "MOST_CLIENTS", 7)
    report = count_classes(load_data("digits", clients=50, partition="iid"))
    assert report.counted.tolist() == [0, 8, 16, 24, 32, 40, 49]
    assert len(report.sizes) == 50
    assert report.counts.shape == (7, 10)


def test_counts_are_written_and_read():
    counted = count_classes(load_data("digits", clients=10, alpha=0.1))
    content = counted.to_bytes()
    found = ClientClassCounts.from_bytes(content)
    assert found.to_bytes() == content
    assert found.summary() == counted.summary()
    assert (found.counts == counted.counts).all()


@pytest.mark.parametrize("content", [b"", b"no archive", count_classes(load_data("digits")).to_bytes()[:-40]])
def test_anything_else_is_refused(content):
    with pytest.raises(ValueError, match="not a file of class counts"):
        ClientClassCounts.from_bytes(content)


@pytest.mark.parametrize(
    ("values", "edges"), [([5, 5], [5, 6]), ([1, 8], list(range(1, 10))), ([0, 16], [0, 3, 6, 9, 12, 15, 18])]
)
def test_bins_are_whole_and_cover_everything(values, edges):
    assert _edges(np.array(values)).tolist() == edges
