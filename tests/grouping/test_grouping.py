"""The section `grouping`: which options go together, and what it gives to routes."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import make_federation

from fedrelay.data.federation import federate
from fedrelay.errors import DivergedError, SpecError
from fedrelay.experiment.spec import validate
from fedrelay.grouping.distances import DISTANCES, DistanceName
from fedrelay.grouping.group_filling import GroupSizeBounds
from fedrelay.grouping.grouping import OPTIONS, AssignerName, Grouping, default_group_count
from fedrelay.grouping.profiles import PROFILES, Profile, ProfileInputs, ProfileOptions, ProfilingResult
from fedrelay.grouping.profiles.histogram import ClassCountsProfile

WAYS = [
    {},
    {"assign": "kmeans"},
    {"assign": "kmeans", "order": "last", "clusters": 2},
    *({"assign": "greedy", "distance": name} for name in DISTANCES),
    {"assign": "greedy", "start": "uniform", "vector": "halving", "candidates": 3},
    {"assign": "greedy", "profile": "counts"},
    {"assign": "icg"},
    {"assign": "icg", "profile": "counts", "groups": 4, "iterations": 2},
]


def ids(way):
    return Grouping(**way).name


def test_names_of_options_are_names_of_parts():
    assert set(get_args(AssignerName)) == set(OPTIONS)
    assert set(get_args(DistanceName)) == set(DISTANCES)
    own = set().union(*OPTIONS.values()) | {"assign", "max_clients", "min_samples"}
    of_profiles = set().union(*(profile.options for profile in PROFILES.values()))
    assert of_profiles == set(ProfileOptions.model_fields)
    assert own | of_profiles == set(Grouping.model_fields)


@pytest.mark.parametrize("way", WAYS, ids=ids)
def test_every_way_is_a_partition_of_the_clients_that_hold_data(way, make_clients, make_counts):
    counts = make_counts(30, 4, 0.3)
    counts[[0, 7, 29]] = 0
    inputs = ProfileInputs(make_clients(counts), 3)
    groups = Grouping(**way).form_groups(inputs)
    assert sorted(client for group in groups for client in group) == sorted(set(range(30)) - {0, 7, 29})
    assert all(isinstance(client, int) for group in groups for client in group)
    assert Grouping(**way).form_groups(inputs) == groups


@given(st.sampled_from(WAYS), st.lists(st.lists(st.integers(0, 30), min_size=3, max_size=3), min_size=1, max_size=25))
@settings(max_examples=60)
def test_any_histograms_at_all(make_clients, way, counts):
    federation = make_clients(counts)
    groups = Grouping(**way).form_groups(ProfileInputs(federation, 1))
    assert sorted(client for group in groups for client in group) == np.flatnonzero(federation.sample_counts()).tolist()
    if "groups" not in way:
        assert all(len(group) <= 11 for group in groups)


@pytest.mark.parametrize("assign", ["kmeans", "greedy", "icg"])
def test_a_single_class(assign, make_clients):
    groups = Grouping(assign=assign, max_clients=3).form_groups(ProfileInputs(make_clients([[5]] * 9), 1))
    assert sorted(len(group) for group in groups) == [3, 3, 3]


def test_nobody_holds_data(make_clients):
    assert Grouping(assign="icg").form_groups(ProfileInputs(make_clients([[0, 0]] * 3), 1)) == ()


@pytest.mark.parametrize("assign", ["kmeans", "greedy", "icg"])
def test_one_class_each_and_equal_sizes_give_complete_groups(assign, make_clients):
    counts = np.random.default_rng(0).permutation(np.repeat(np.eye(5, dtype=int) * 20, 6, axis=0))
    groups = Grouping(assign=assign, max_clients=5, min_samples=100).form_groups(ProfileInputs(make_clients(counts), 2))
    assert [counts[list(group)].sum(axis=0).tolist() for group in groups] == [[20] * 5] * 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distance": "kl"}, "grouping.distance: has no effect with assign 'random'; it is an option of 'greedy'"),
        ({"profile": "counts"}, "grouping.profile: has no effect with assign 'random'"),
        ({"assign": "kmeans", "distance": "cosine"}, "grouping.distance: has no effect with assign 'kmeans'"),
        ({"assign": "kmeans", "leftovers": "drop"}, "grouping.leftovers: has no effect with assign 'kmeans'"),
        ({"assign": "greedy", "groups": 3}, "grouping.groups: has no effect with assign 'greedy'"),
        ({"assign": "icg", "vector": "mean"}, "grouping.vector: has no effect with assign 'icg'"),
        ({"assign": "icg", "groups": 3, "max_clients": 4}, "grouping.max_clients: has no effect if the number"),
        (
            {"assign": "greedy", "distance": "kl", "profile": "counts"},
            "grouping.distance: 'kl' needs class probabilities, but profile 'counts' does not give them; "
            "allowed: euclidean, cosine, norm-cosine, wasserstein",
        ),
        ({"assign": "greedy", "distance": "gini", "profile": "counts"}, "'gini' needs class probabilities"),
        ({"assign": "greedy", "start": "uniform", "profile": "counts"}, "grouping.start: 'uniform' needs class prob"),
        ({"assign": "gredy"}, "grouping.assign: must be 'random', 'kmeans', 'greedy' or 'icg', got 'gredy' (did you"),
        ({"assign": "icg", "groups": 0}, "grouping.groups: must be greater than or equal to 1"),
        ({"assign": "greedy", "profile": "clf2"}, "grouping.profile: must be"),
        ({"assign": "greedy", "profile": "clf", "distance": "kl"}, "'kl' needs class probabilities"),
        ({"assign": "greedy", "profile": "t2v", "distance": "gini"}, "'gini' needs class probabilities"),
        (
            {"assign": "greedy", "profile": "clf", "distance": "norm-cosine"},
            "grouping.distance: 'norm-cosine' needs vectors without negative entries, but profile 'clf' does not "
            "give them; allowed: euclidean, cosine, wasserstein",
        ),
        ({"assign": "greedy", "profile": "weights", "distance": "norm-cosine"}, "needs vectors without negative"),
        ({"epochs": 3}, "epochs: has no effect with assign 'random'; it is an option of profile 'clf', 'conf', 'weigh"),
        ({"assign": "icg", "epochs": 3}, "grouping.epochs: has no effect with profile 'hist'"),
        ({"assign": "icg", "profile": "t2v", "epochs": 3}, "grouping.epochs: has no effect with profile 't2v'"),
        ({"assign": "icg", "profile": "conf", "layers": "last"}, "layers: has no effect with profile 'conf'; it is an"),
        ({"assign": "icg", "profile": "clf", "probe": "mnist"}, "probe: has no effect with profile 'clf'; it is an op"),
        ({"assign": "icg", "profile": "conf", "variance": 0.5}, "variance: has no effect with profile 'conf'"),
        ({"assign": "icg", "profile": "clf", "normalise": "softmax"}, "normalise: has no effect with profile 'clf'"),
        ({"assign": "icg", "profile": "clf", "relative": True}, "relative: has no effect with profile 'clf'"),
        ({"assign": "icg", "profile": "weights", "relative": True}, "relative: has no effect on principal components"),
        (
            {"assign": "icg", "profile": "clf", "standardise": True, "variance": None},
            "grouping.standardise: has no effect with variance null",
        ),
        ({"assign": "icg", "profile": "clf", "variance": 1.5}, "grouping.variance: must be less than or equal to 1"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(SpecError) as refused:
        validate(Grouping, options, "grouping.")
    assert message in str(refused.value)


def test_a_default_that_is_spelled_out_is_no_mistake():
    for assign in OPTIONS:
        assert Grouping(**{**Grouping().model_dump(), "assign": assign}) == Grouping(assign=assign)


def test_negative_entries_rule_norm_cosine_out(monkeypatch):
    monkeypatch.setattr(ClassCountsProfile, "non_negative", False)
    with pytest.raises(ValueError, match="needs vectors without negative entries"):
        Grouping(assign="greedy", profile="counts", distance="norm-cosine")


def test_a_profile_that_is_not_finite_names_the_client(monkeypatch, make_clients):
    class Broken(Profile):
        def compute(self, inputs, clients, options):
            return ProfilingResult(np.where(clients == 2, np.nan, 1.0)[:, None])

    monkeypatch.setitem(PROFILES, "counts", Broken())
    with pytest.raises(DivergedError, match="the profile 'counts' of client 2 has non-finite values"):
        Grouping(assign="icg", profile="counts").form_groups(ProfileInputs(make_clients([[1, 2]] * 4), 1))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "random"),
        ({"assign": "greedy"}, "greedy/kl"),
        ({"assign": "greedy", "profile": "counts"}, "greedy/cosine/counts"),
        ({"assign": "icg", "profile": "counts"}, "icg/counts"),
        ({"assign": "greedy", "profile": "conf"}, "greedy/kl/conf"),
        ({"assign": "greedy", "profile": "clf"}, "greedy/cosine/clf"),
        ({"assign": "greedy", "profile": "t2v"}, "greedy/norm-cosine/t2v"),
        ({"assign": "kmeans", "profile": "weights", "variance": None, "relative": True}, "kmeans/weights"),
    ],
)
def test_names(options, name):
    assert Grouping(**options).name == name


@pytest.mark.parametrize(
    ("sizes", "bounds", "expected"),
    [
        (np.full(500, 100), GroupSizeBounds(11, 800), 62),
        (np.full(100, 14), GroupSizeBounds(11, 800), 10),
        (np.full(3, 5), GroupSizeBounds(11, 800), 1),
        (np.full(3, 9000), GroupSizeBounds(11, 800), 3),
    ],
)
def test_icg_makes_as_many_groups_as_completion_asks_for(sizes, bounds, expected):
    assert default_group_count(sizes, bounds) == expected


def test_a_federation_of_ones_own():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 3)).astype(np.float32), rng.integers(0, 4, 200)
    own = federate(x, y, x[:5], y[:5], clients=20, alpha=0.1)
    groups = Grouping(assign="greedy", max_clients=4).form_groups(ProfileInputs(own, 1))
    assert sorted(map(len, groups)) == [4] * 5


class BySizeGrouping(Grouping):
    """An own assigner, and an own profile with a field of its own."""

    length: int = 2

    @property
    def active_profile(self):
        return SizeProfile()

    def assign_groups(self, vectors, sizes, rng, *, classes):
        order = np.argsort(vectors[:, 0]).tolist()
        return tuple(tuple(order[i : i + self.length]) for i in range(0, len(order), self.length))


class SizeProfile(Profile):
    non_negative = True

    def compute(self, inputs, clients, options):
        return ProfilingResult(inputs.federation.sample_counts()[clients, None].astype(np.float64))


def test_a_subclass_may_have_its_own_profile_assigner_and_options(make_clients):
    inputs = ProfileInputs(make_clients([[5, 0], [0, 0], [1, 0], [9, 9], [2, 1]]), 1)
    assert BySizeGrouping().form_groups(inputs) == ((2, 4), (0, 3))
    assert BySizeGrouping(length=3).form_groups(inputs) == ((2, 4, 0), (3,))
    with pytest.raises(SpecError, match="clusters: has no effect"):
        validate(BySizeGrouping, {"clusters": 3}, "grouping.")


GROUPS = {
    "good": [np.array([2, 0]), [1]],
    "far": [[0, 1], [99]],
    "negative": [[0, 1], [-1]],
    "overlapping": [[0, 1], [1, 2]],
    "twice": [[0, 0]],
    "empty": [[0], []],
    "none": [],
    "halves": [[0.5]],
    "flat": [0, 1],
}


class Own(Grouping):
    which: str = "good"

    def assign_groups(self, vectors, sizes, rng, *, classes):
        return GROUPS[self.which]


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("far", "ValueError: row 99 does not exist; the clients with samples are rows 0 to 2"),
        ("negative", "ValueError: row -1 does not exist"),
        ("overlapping", "ValueError: row 1 is in two groups or twice in one"),
        ("twice", "ValueError: row 0 is in two groups or twice in one"),
        ("empty", "ValueError: every group needs a client, got ((0,), ())"),
        ("none", "ValueError: every group needs a client, got ()"),
        ("halves", "TypeError: 'float' object cannot be interpreted as an integer"),
        ("flat", "TypeError: 'int' object is not iterable"),
    ],
)
def test_groups_of_an_own_grouping_are_checked_when_they_are_formed(which, message):
    inputs = ProfileInputs(make_federation([5, 0, 3, 4]), 1)
    with pytest.raises(SpecError) as refused:
        Own(which=which).form_groups(inputs)
    assert str(refused.value).startswith(f"grouping 'Own', assign_groups: {message}")
    assert Own().form_groups(inputs) == ((3, 0), (2,))


def test_it_is_said_that_balanced_groups_of_very_many_clients_take_long(make_clients, monkeypatch, caplog):
    monkeypatch.setattr("fedrelay.grouping.grouping.MOST_AT_ONCE", 3)
    inputs = ProfileInputs(make_clients(np.eye(4, dtype=int)), seed=1)
    Grouping(assign="random").form_groups(inputs)
    Grouping(assign="icg", groups=2).form_groups(inputs, key=2)
    assert not caplog.text
    Grouping(assign="icg", groups=2).form_groups(inputs)
    assert "forming balanced groups of 4 clients takes minutes; with grouping.assign=random it takes" in caplog.text
