from __future__ import annotations

import pytest
from tests.tuning.tiny import tiny_tuning

from fedrelay.errors import SpecError
from fedrelay.tuning.tuned_methods import TuningPlan


def test_trials_differ_in_their_learning_rate_and_hyperparameter_alone():
    plan = TuningPlan.of(tiny_tuning())
    fedavg, fedprox = (plan.experiments(method, method.space.points()) for method in plan.methods)
    assert [each.train.lr for each in fedavg] == [each.train.lr for each in fedprox] == [0.00625, 0.025, 0.1, 0.4]
    assert [each.terms for each in fedavg] == [{}] * 4
    assert [each.terms["prox"]["mu"] for each in fedprox] == [0.01, 0.1, 1.0, 0.01]
    first = fedavg[0].model_copy(update={"train": fedavg[1].train})
    assert first == fedavg[1]
    assert {each.rounds for each in (*fedavg, *fedprox)} == {4}  # a rung is no shorter experiment


def test_a_method_with_its_own_learning_rate_is_tuned_around_it():
    methods = [{"method": "fedavg", "train": {"lr": 0.4, "momentum": 0.5}}]
    [method] = TuningPlan.of(tiny_tuning(methods=methods)).methods
    assert method.space.rates == (0.05, 0.2, 0.8, 3.2)
    assert method.at(method.space.points()[0]).train == {"lr": 0.05, "momentum": 0.5}


def test_the_hyperparameter_may_be_chosen():
    chosen = {"fedavg": {"momentum": [0.0, 0.5]}, "fedprox": {}}
    fedavg, fedprox = TuningPlan.of(tiny_tuning(tune={"hyperparameter": chosen})).methods
    assert fedavg.space.hyperparameter.key == "train.momentum"
    assert fedprox.space.hyperparameter is None  # nothing but the learning rate


def test_a_value_that_was_given_is_kept():
    fixed = {"method": "fedprox", "terms": {"prox": {"mu": 0.5}}}
    plan = TuningPlan.of(tiny_tuning(methods=[fixed]))
    [method] = plan.methods
    assert method.space.hyperparameter is None
    assert {each.terms["prox"]["mu"] for each in plan.experiments(method, method.space.points())} == {0.5}
    [method] = TuningPlan.of(tiny_tuning(methods=["fedprox"], terms={"prox": {"mu": 0.5}})).methods
    assert method.space.hyperparameter is None
    chosen = {"fedprox": {"terms.prox.mu": [0.2, 0.4]}}
    [method] = TuningPlan.of(tiny_tuning(methods=[fixed], tune={"hyperparameter": chosen})).methods
    assert method.space.hyperparameter.values == (0.2, 0.4)


def test_all_methods_share_the_test_samples_that_one_of_them_leaves():
    methods = ["fedavg", {"method": "fedseq", "grouping": {"assign": "greedy", "profile": "conf"}}]
    plan = TuningPlan.of(tiny_tuning(methods=methods))
    [experiment] = plan.experiments(plan.methods[0], plan.methods[0].space.points()[:1])
    assert experiment.data.public == 10


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tune": {"hyperparameter": {"fedprox": {"terms.prox.mu": [-1, 1]}}}}, "fedprox: terms.prox.mu: must be"),
        ({"tune": {"hyperparameter": {"fedavg": {"terms.prox.mu": [0, 1]}}}}, "fedavg: terms"),
        ({"methods": ["fedavgg"]}, "unknown name 'fedavgg'"),
    ],
)
def test_values_are_checked_before_anything_runs(settings, message):
    with pytest.raises(SpecError) as error:
        TuningPlan.of(tiny_tuning(**settings))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
