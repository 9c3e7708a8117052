from __future__ import annotations

import numpy as np
import pytest
import torch

from fedrelay.errors import SpecError
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment, validate
from fedrelay.merge.krum import Krum, krum_scores, squared_distances

MODELS = np.random.default_rng(7).normal(size=(9, 4))


def apply(make_inputs, rule, models, **how):
    return rule.apply(make_inputs(np.asarray(models), **how)).weights.numpy()


def reference_scores(models, attackers):
    """Straight from the paper, in plain NumPy."""
    found = []
    for model in models:
        squares = np.sort(((models - model) ** 2).sum(axis=1))[1:]  # without itself
        found.append(squares[: max(1, len(models) - attackers - 2)].sum())
    return found


@pytest.mark.parametrize("attackers", [0, 1, 2, 5, 20])
def test_krum_is_the_paper_s(make_inputs, attackers):
    expected = reference_scores(MODELS, attackers)
    assert krum_scores([torch.tensor(model) for model in MODELS], attackers) == pytest.approx(expected)
    order = np.argsort(expected, kind="stable")
    assert apply(make_inputs, Krum(attackers=attackers), MODELS).tolist() == MODELS[order[0]].tolist()
    kept = apply(make_inputs, Krum(attackers=attackers, keep=4), MODELS)
    assert kept == pytest.approx(MODELS[order[:4]].mean(axis=0))


def test_multi_krum_can_weigh_by_samples(make_inputs):
    models, samples = [[0.0], [1.0], [1.5], [50.0], [0.5]], [1, 2, 3, 400, 4]
    merged = apply(make_inputs, Krum(attackers=1, keep=4, weights="samples"), models, samples=samples)
    assert merged == pytest.approx([(2 + 4.5 + 2) / 10])
    inputs = make_inputs(models, samples=[0] * 5, global_model=[7.0])
    assert Krum(weights="samples").apply(inputs).weights.tolist() == [7.0]


def test_krum_that_keeps_all_is_the_mean(make_inputs):
    assert apply(make_inputs, Krum(keep=99), MODELS) == pytest.approx(MODELS.mean(axis=0))


def test_krum_counters_come_from_the_models_kept(make_inputs, batch_norm):
    models = [[0.0, 0.0, 0.0, 1.0, 3], [9.0, 0.0, 0.0, 1.0, 900], [0.1, 0.0, 0.0, 1.0, 5], [0.2, 0.0, 0.0, 1.0, 4]]
    assert apply(make_inputs, Krum(keep=3), models, layout=batch_norm, dtype=torch.float32)[4] == 5


def test_equal_models_are_at_no_distance():
    models = [torch.full((5000,), 0.1) for _ in range(3)]
    assert squared_distances(models).tolist() == [[0.0] * 3] * 3


def test_sums_are_taken_in_double_precision(make_inputs):
    assert apply(make_inputs, Krum(keep=4), [[1e8], [1.0], [-1e8], [1.0]], dtype=torch.float32).tolist() == [0.5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attackers": -1}, "merge.attackers: must be greater than or equal to 0, got -1"),
        ({"keep": 0}, "merge.keep: must be greater than or equal to 1, got 0"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(SpecError) as refused:
        validate(Krum, options, "merge.")
    assert message in str(refused.value)


@pytest.mark.parametrize(("attackers", "models"), [(1, 3), (4, 6)])
def test_attackers_that_leave_no_neighbour_are_refused(attackers, models):
    with pytest.raises(SpecError, match=f"merge.attackers: {attackers} of {models} models"):
        Krum(attackers=attackers).check_arrival_count(lambda: models)
    Krum(attackers=attackers).check_arrival_count(lambda: attackers + 3)


@pytest.mark.parametrize("models", [1, 2])
def test_krum_needs_three_models(models):
    hint = f"krum: needs at least 3 models in a round; this experiment has {models}; raise fraction"
    with pytest.raises(SpecError, match=hint):
        Krum(attackers=0).check_arrival_count(lambda: models)


def test_keeping_everybody_is_refused():
    with pytest.raises(SpecError, match=r"merge.keep: 5 of 5 models keeps all of them.*; set at most 4"):
        Krum(keep=5).check_arrival_count(lambda: 5)
    Krum(keep=4).check_arrival_count(lambda: 5)


def test_an_experiment_with_too_many_attackers_is_refused_before_anything_is_trained(toy):
    with pytest.raises(SpecError, match="set at most 3"):
        prepare(experiment("krum", fraction=1.0, merge={"attackers": 4}), federation=toy)
