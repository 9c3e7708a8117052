from __future__ import annotations

import pytest

from fedrelay.experiment.method import build_method
from fedrelay.experiment.method_catalogue import METHODS
from fedrelay.experiment.method_hyperparameters import HYPERPARAMETERS, hyperparameter_of
from fedrelay.experiment.spec import experiment


@pytest.mark.parametrize("name", HYPERPARAMETERS)
def test_every_value_is_accepted_by_its_method(name):
    tuned = HYPERPARAMETERS[name]
    assert name in METHODS
    assert len(set(tuned.values)) == len(tuned.values) > 1
    for value in tuned.values:
        build_method(experiment(name, **{tuned.key: value}))


def test_the_first_name_that_has_one_counts():
    assert hyperparameter_of("fedseq + fedprox+fedadam") == HYPERPARAMETERS["fedprox"]
    assert hyperparameter_of("fedseq") is None
