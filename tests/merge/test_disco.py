from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import distance as scipy_distance
from scipy.stats import entropy

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import validate
from fedrelay.merge.disco import Disco, disco_weights, share_distance
from fedrelay.merge.mean import Mean
from fedrelay.routes.arrival import HopReport

HISTOGRAMS = np.array([[100, 0], [50, 50], [150, 50]])


@pytest.fixture(scope="module")
def golden(make_inputs):
    return make_inputs([[1.0], [10.0], [100.0]], samples=[100, 100, 200], label_histogram=HISTOGRAMS.__getitem__)


def through(arrival, *clients):
    """The same arrival from a route through these clients."""
    hops = (arrival.hops[0], *[HopReport(0, 0, 0.0)] * (len(clients) - 1))
    return replace(arrival, clients=clients, hops=hops)


def test_weights_of_a_skewed_route_fall(golden):
    merged = Disco().apply(golden)
    assert merged.weights.item() == pytest.approx(10 * 0.402012 + 100 * 0.597988, abs=1e-4)
    assert merged.state == {}


def test_the_steps_of_the_rule():
    uniform = np.full(2, 0.5)
    distances = [share_distance(np.array(shares), uniform, "kl") for shares in [(1.0, 0.0), (0.5, 0.5), (0.75, 0.25)]]
    assert distances == pytest.approx([0.693147, 0, 0.130812], abs=1e-6)
    assert disco_weights([100, 100, 200], distances, 0.5, 0.1) == pytest.approx([0, 0.402012, 0.597988], abs=1e-6)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 20), min_size=4, max_size=4), st.lists(st.integers(1, 20), min_size=4, max_size=4))
def test_distances_are_those_of_scipy(found, target):
    p, q = (np.array(found) + 1e-3) / sum(np.array(found) + 1e-3), np.array(target) / sum(target)
    assert share_distance(p, q, "kl") == pytest.approx(entropy(p, q), abs=1e-12)
    assert share_distance(p, q, "cosine") == pytest.approx(scipy_distance.cosine(p, q), abs=1e-12)
    assert share_distance(p, q, "l1") == pytest.approx(scipy_distance.cityblock(p, q))
    assert share_distance(p, q, "l2") == pytest.approx(scipy_distance.euclidean(p, q))


def test_a_and_b_of_zero_are_the_mean(golden):
    merged = Disco(a=0, b=0).apply(golden).weights
    assert merged.tolist() == pytest.approx(Mean().apply(golden).weights.tolist())


def test_equal_classes_are_the_mean_of_sizes_and_b(make_inputs):
    inputs = make_inputs([[0.0], [1.0]], samples=[1, 3])
    assert Disco(b=0.25).apply(inputs).weights.item() == pytest.approx(1 / 1.5)


def test_where_no_weight_is_left_samples_decide(golden):
    merged = Disco(a=0, b=-1).apply(golden)
    assert merged.weights.tolist() == Mean().apply(golden).weights.tolist()


def test_without_samples_the_model_stays(make_inputs):
    inputs = make_inputs([[1.0], [2.0]], global_model=[7.0], samples=[0, 0])
    assert Disco().apply(inputs).weights.tolist() == [7.0]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 500), st.floats(0, 3)), min_size=1, max_size=12),
    st.floats(0, 5),
    st.floats(-2, 2),
)
def test_weights_sum_to_one_and_fall_with_distance(routes, a, b):
    samples, distances = zip(*routes, strict=True)
    weights = disco_weights(samples, distances, a, b)
    assert sum(weights) == pytest.approx(1)
    assert min(weights) >= 0
    even = disco_weights([1] * len(routes), distances, a, b)
    by_distance = [weight for _, weight in sorted(zip(distances, even, strict=True))]
    assert all(one >= two - 1e-12 for one, two in pairwise(by_distance))


def test_a_client_with_two_hops_counts_once(make_inputs):
    inputs = make_inputs(
        [[0.0], [1.0]], clients=4, label_histogram=np.array([[8, 0], [0, 4], [6, 2], [0, 0]]).__getitem__
    )
    once = [through(inputs.arrivals[0], 0, 1), through(inputs.arrivals[1], 2, 3)]
    twice = [through(inputs.arrivals[0], 0, 1, 0, 0), once[1]]
    expected = disco_weights(
        [1, 1], [share_distance(np.array([2 / 3, 1 / 3]), np.full(2, 0.5), "kl"), 0.130812], 0.5, 0.1
    )
    for arrivals in (once, twice):
        merged = Disco().apply(replace(inputs, arrivals=arrivals)).weights
        assert merged.item() == pytest.approx(expected[1], abs=1e-6)


def test_routes_through_all_clients_are_the_plain_mean(make_inputs):
    inputs = make_inputs([[1.0], [2.0], [6.0]], label_histogram=HISTOGRAMS.__getitem__)
    orders = [(0, 1, 2), (1, 2, 0), (2, 0, 1)]
    arrivals = [through(arrival, *order) for arrival, order in zip(inputs.arrivals, orders, strict=True)]
    assert Disco().apply(replace(inputs, arrivals=arrivals)).weights.item() == pytest.approx(3)


def test_the_global_target_is_found_once(make_inputs):
    asked = []

    def histogram(client):
        asked.append(client)
        return HISTOGRAMS[client]

    inputs = make_inputs([[1.0], [10.0]], label_histogram=histogram, clients=3)
    first = Disco(target="global").apply(inputs)
    assert asked == [0, 1, 0, 1, 2]
    assert first.state["target"].tolist() == [0.75, 0.25]
    target = np.array([0.75, 0.25])
    gaps = [share_distance(HISTOGRAMS[client] / 100, target, "kl") for client in (0, 1)]
    weights = disco_weights([1, 1], gaps, 0.5, 0.1)
    assert first.weights.item() == pytest.approx(weights[0] + 10 * weights[1])
    again = Disco(target="global").apply(replace(inputs, state=first.state))
    assert asked[5:] == [0, 1]
    assert again.weights.tolist() == first.weights.tolist()


@pytest.mark.parametrize("metric", ["kl", "cosine", "l1", "l2"])
@pytest.mark.parametrize("target", ["uniform", "global"])
def test_no_labels_are_no_distance(make_inputs, metric, target):
    inputs = make_inputs([[1.0], [3.0]], label_histogram=np.array([[0, 0], [3, 3]]).__getitem__)
    assert Disco(metric=metric, target=target).apply(inputs).weights.item() == pytest.approx(2)


def test_identical_models_are_a_fixed_point(golden):
    arrivals = [replace(arrival, weights=golden.arrivals[0].weights) for arrival in golden.arrivals]
    assert Disco().apply(replace(golden, arrivals=arrivals)).weights.item() == pytest.approx(1)


def test_an_unknown_metric_is_refused():
    with pytest.raises(
        SpecError, match=r"merge.metric: must be 'kl', 'cosine', 'l1' or 'l2', got 'cosin' \(did you mean"
    ):
        validate(Disco, {"metric": "cosin"}, "merge.")
