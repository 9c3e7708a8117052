"""What holds for all profiles."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from tests.grouping.profiles.conftest import SMALL, profiled

from fedrelay.errors import DivergedError, SpecError
from fedrelay.experiment.comparison_runs import experiments
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import comparison, experiment
from fedrelay.grouping.profiles import PROFILES, ProfileName


def test_every_profile_has_a_name():
    assert set(get_args(ProfileName)) == set(PROFILES)


@pytest.mark.parametrize("name", ["hist", "counts", "conf", "clf", "weights"])
def test_what_is_said_of_a_profile_is_true(name):
    profile, vectors = PROFILES[name], profiled(name).prepared.profiling.vectors
    assert vectors.dtype == np.float64
    assert len(vectors) == 12
    assert not profile.non_negative or (vectors >= 0).all()
    if profile.probabilities:
        assert profile.non_negative
        np.testing.assert_allclose(vectors.sum(axis=1), 1)


@pytest.mark.parametrize("profile", ["clf", "conf", "weights"])
def test_vectors_do_not_depend_on_the_number_of_workers(profile):
    alone, together = profiled(profile, workers=1), profiled(profile, workers=2)
    np.testing.assert_array_equal(alone.prepared.profiling.vectors, together.prepared.profiling.vectors)
    assert alone.prepared.groups == together.prepared.groups


@pytest.mark.parametrize(
    ("profile", "up"),
    [("clf", {"model": 592 * 4}), ("conf", {"profile": 10 * 4}), ("weights", {"model": 610 * 4})],
)
def test_a_model_goes_to_every_client_and_a_vector_comes_back(profile, up):
    line = profiled(profile).costs.setup_line()
    assert (line["round"], line["s2c"], line["c2s"], line["c2c"], line["client_updates"]) == (0, 12, 12, 0, 12)
    expected = {"model": 12 * 610 * 4}
    for payload, size in up.items():
        expected[payload] = expected.get(payload, 0) + 12 * size
    assert line["payloads"] == expected
    assert line["bytes"] == sum(expected.values())


@pytest.mark.parametrize("name", ["clf", "conf", "weights"])
def test_a_diverging_client_is_named(name):
    with pytest.raises(DivergedError, match=r"profiling: the model left client \d+ with non-finite weights; lower tra"):
        profiled(name, settings={**SMALL, "lr": 1e30}, epochs=5)


def test_what_cannot_be_described_is_refused_before_anybody_trains(make_clients):
    rows = make_clients([[5, 5]] * 4)
    with pytest.raises(SpecError, match="'t2v' needs images, but the samples of 'toy' are tabular"):
        prepare(experiment("fedseq", **{"grouping.assign": "icg", "grouping.profile": "t2v"}), federation=rows)
    with pytest.raises(SpecError, match=r"data.public: must be at least 1 for the profile 'conf'"):
        profiled("conf", settings={**SMALL, "public": 0})


def test_the_public_set_is_taken_from_all_methods_alike():
    conf = {"method": "fedseq", "label": "conf", "grouping": {"assign": "icg", "profile": "conf"}}
    runs = experiments(comparison(["fedavg", "centralized", conf], data="digits", clients=12, rounds=1))
    assert [run.data.public for _, run in runs] == [10, 10, 10]
    left = [len(prepare(run, groups=((0, 1),)).prepared.federation.test.y) for _, run in runs]
    assert left == [359 - 100] * 3
    assert [run.data.public for _, run in experiments(comparison(["fedavg", "fedseq"]))] == [0, 0]
    assert [run.data.public for _, run in experiments(comparison(["fedavg", conf], public=3))] == [3, 3]
