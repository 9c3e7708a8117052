from __future__ import annotations

import pytest
from tests.tuning.tiny import tiny_tuning

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import validate
from fedrelay.tuning.settings import DEFAULT_METHODS, Tuning


def test_defaults():
    tuning = validate(Tuning, {})
    assert tuple(entry.method for entry in tuning.methods) == DEFAULT_METHODS
    assert tuning.data.validation == 0.2
    assert validate(Tuning, {"data": "heart-disease"}).data.validation == 0.2
    assert validate(Tuning, {"data": {"validation": 0.1}}).data.validation == 0.1
    assert (tuning.tuning_seeds, tuning.seeds) == ((1, 2), (11, 12, 13))


def test_seeds_of_the_tuning_are_others_than_those_of_the_comparison():
    assert validate(Tuning, {"seeds": [1, 3]}).tuning_seeds == (2, 4)
    assert validate(Tuning, {"seeds": [1, 3], "tune": {"seeds": [9]}}).tuning_seeds == (9,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": {"validation": 0}}, "data.validation: must be above 0"),
        ({"seeds": [1, 2]}, "seeds: 1 is used for tuning (tune.seeds); the comparison needs fresh seeds"),
        ({"rounds": 1}, "tune.rungs: 2 rungs need at least 2 evaluations, and there are 1"),
        ({"eval": {"every": 3}}, "tune.rungs: 2 rungs need at least 2 evaluations, and there are 1"),
        ({"tune": {"objective": "bytes"}}, "tune.objective: 'bytes' is a cost until stop.target is reached"),
        ({"stop": {"target": 0.9}}, "stop.target: a run stops there; choose a cost as tune.objective"),
        ({"stop": {"max_wall": 5}}, "stop.max_wall: the choice would depend on this machine"),
        ({"engine": {"name": "flower", "workers": 0}}, "engine.name: methods are tuned in simulation"),
        (
            {"tune": {"hyperparameter": {"moon": {"terms.contrast.mu": [1, 2]}}}},
            "tune.hyperparameter: 'moon' is none of the methods",
        ),
        ({"tune": {"hyperparameter": {"fedavg": {"lr": [1, 2]}}}}, "tune.hyperparameter.fedavg: lr is always tuned"),
        ({"tune": {"hyperparameter": {"fedavg": {"momentum": [0.5]}}}}, "momentum needs at least two different values"),
        (
            {"tune": {"hyperparameter": {"fedavg": {"momentum": [0, 0]}}}},
            "momentum needs at least two different values",
        ),
        ({"tune": {"hyperparameter": {"fedavg": {"momentum": [0, 1], "clip": [1, 2]}}}}, "at most one setting"),
        ({"tune": {"seeds": [1, 1]}}, "tune.seeds: must be different seeds"),
        ({"tune": {"span": 1}}, "tune.span: must be greater than 1"),
        ({"tune": {"trials": 1}}, "tune.trials: must be greater than or equal to 2"),
        ({"tune": {"objective": "speed"}}, "tune.objective: must be"),
        ({"tune": {"trails": 3}}, "tune.trails: unknown key 'trails' (did you mean 'trials'?)"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(settings, message):
    with pytest.raises(SpecError) as error:
        tiny_tuning(**settings)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
