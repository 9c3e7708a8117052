from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from sklearn.decomposition import PCA

from fedrelay.errors import DivergedError, SpecError
from fedrelay.experiment.comparison_runs import experiments
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import TrainSettings, comparison, experiment
from fedrelay.grouping.base import Grouping
from fedrelay.grouping.principal_components import principal_components
from fedrelay.grouping.profiles import PROFILES, ProfileInputs, ProfileName
from fedrelay.grouping.profiles.classifier import linear_layers
from fedrelay.grouping.profiles.confidence import normalised
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.models.zoo import build_model

SMALL = {"data": "digits", "clients": 12, "alpha": 0, "model": "mlp", "hidden": [8], "batch_size": 16}


def profiled(profile, workers=1, method="fedseq", settings=SMALL, **options):
    """A prepared run with profiles of its clients."""
    grouping = {f"grouping.{name}": value for name, value in {"assign": "icg", "profile": profile, **options}.items()}
    return prepare(experiment(method, **settings, **grouping, **{"engine.workers": workers}))


@pytest.fixture
def inputs(make_clients):
    return ProfileInputs(make_clients([[3, 1, 0], [0, 0, 0], [0, 0, 5]]), seed=1)


def test_every_profile_has_a_name():
    assert set(get_args(ProfileName)) == set(PROFILES)


def described(name, inputs, clients):
    return PROFILES[name].compute(inputs, np.array(clients), Grouping()).vectors


def test_histograms(inputs):
    np.testing.assert_array_equal(described("counts", inputs, [0, 2]), [[3, 1, 0], [0, 0, 5]])
    np.testing.assert_array_equal(described("hist", inputs, [0, 2]), [[0.75, 0.25, 0], [0, 0, 1]])


def test_a_client_without_labels_that_count_has_equal_shares(inputs):
    np.testing.assert_allclose(described("hist", inputs, [1]), [[1 / 3] * 3])


@pytest.mark.parametrize("name", ["hist", "counts", "conf", "clf", "weights"])
def test_what_is_said_of_a_profile_is_true(name):
    profile, vectors = PROFILES[name], profiled(name).prepared.profiling.vectors
    assert vectors.dtype == np.float64
    assert len(vectors) == 12
    assert not profile.non_negative or (vectors >= 0).all()
    if profile.probabilities:
        assert profile.non_negative
        np.testing.assert_allclose(vectors.sum(axis=1), 1)


def test_confidences_become_shares():
    confidences = np.array([[0.9, 0.3, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(normalised(confidences), [[0.75, 0.25, 0], [1 / 3] * 3])
    np.testing.assert_allclose(normalised(confidences, "softmax")[0], [0.511, 0.281, 0.208], atol=5e-4)


def test_a_client_is_sure_of_the_class_it_holds():
    run = profiled("conf", epochs=40)
    held = [run.prepared.federation.histogram(client).argmax() for client in range(12)]
    assert (run.prepared.profiling.vectors.argmax(axis=1) == held).all()
    assert profiled("conf", normalise="softmax").prepared.profiling.vectors.max() < 0.25


def test_the_classifier_of_lenet():
    module = build_model("lenet", (3, 32, 32), 10)
    job = TrainingJob(module, FlatLayout.of(module), None, TrainSettings(), (), seed=1)

    def length(which):
        return sum(end - begin for begin, end in linear_layers(job, which))

    assert (length("all"), length("last2"), length("last")) == (690_048, 384 * 192 + 192 * 10, 192 * 10)


def test_the_weights_of_linear_layers_without_biases():
    raw = {"variance": None, "epochs": 1}
    every, last = (
        profiled("clf", **raw).prepared.profiling.vectors,
        profiled("clf", layers="last", **raw).prepared.profiling.vectors,
    )
    assert (every.shape, last.shape) == ((12, 64 * 8 + 8 * 10), (12, 80))
    np.testing.assert_array_equal(every[:, -80:], last)
    whole = profiled("weights", variance=None)
    assert whole.prepared.profiling.vectors.shape == (12, whole.prepared.layout.trained_size)
    np.testing.assert_array_equal(whole.prepared.profiling.vectors[:, : 64 * 8], every[:, : 64 * 8])
    change = profiled("weights", variance=None, relative=True).prepared.profiling.vectors
    start = whole.prepared.layout.flatten(whole.prepared.module).numpy()[: whole.prepared.layout.trained_size]
    np.testing.assert_allclose(change, whole.prepared.profiling.vectors - start, atol=1e-6)
    assert np.abs(change).max() > 0


def test_components_are_those_of_a_full_decomposition():
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(30, 6)) @ rng.normal(size=(6, 9000)) + rng.normal(size=(30, 9000))).astype(np.float32)
    expected = PCA(n_components=0.9, svd_solver="full").fit_transform(rows.astype(np.float64))
    found = principal_components(rows, 0.9)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-6, atol=1e-6)
    scaled = (rows - rows.mean(axis=0, dtype=np.float64)) / rows.std(axis=0, dtype=np.float64)
    found = principal_components(rows, 0.9, standardise=True)
    expected = PCA(n_components=0.9, svd_solver="full").fit_transform(scaled)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-6, atol=1e-6)
    assert principal_components(rows, 1.0).shape == (30, 29)


def test_clients_that_do_not_differ_are_all_at_zero():
    np.testing.assert_array_equal(principal_components(np.ones((4, 7), dtype=np.float32), 0.9), np.zeros((4, 1)))
    np.testing.assert_array_equal(principal_components(np.ones((1, 7)), 0.9, standardise=True), np.zeros((1, 1)))


def test_a_part_of_many_clients_defines_the_components():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 2)) * (5, 3) @ rng.normal(size=(2, 30)) + rng.normal(size=(400, 30)) * 0.01
    whole, part = principal_components(rows, 0.9), principal_components(rows, 0.9, fitted=rng.permutation(400)[:50])
    assert part.shape == whole.shape == (400, 2)
    distances = [np.linalg.norm(each[:, None] - each, axis=2) for each in (whole, part)]
    np.testing.assert_allclose(distances[0], distances[1], atol=0.1)
    everybody = principal_components(rows, 0.9, fitted=np.arange(400))
    np.testing.assert_allclose(everybody, whole, atol=1e-9)


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


def test_epochs_and_the_settings_of_training_have_an_effect():
    usual = profiled("conf").prepared.profiling.vectors
    np.testing.assert_array_equal(profiled("conf", epochs=10).prepared.profiling.vectors, usual)
    assert not np.array_equal(profiled("conf", epochs=9).prepared.profiling.vectors, usual)
    # What clients train for their profiles is the plain model, whatever the method adds to it.
    np.testing.assert_array_equal(profiled("conf", method="fedseq+fedprox").prepared.profiling.vectors, usual)
    np.testing.assert_array_equal(profiled("conf", settings={**SMALL, "epochs": 3}).prepared.profiling.vectors, usual)
    assert not np.array_equal(profiled("conf", settings={**SMALL, "lr": 0.2}).prepared.profiling.vectors, usual)


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
