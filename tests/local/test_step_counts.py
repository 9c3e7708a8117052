from __future__ import annotations

import pytest

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import TrainSettings, validate
from fedrelay.local.step_counts import step_count


def batches_of_ten(samples):
    return -(-samples // 10)


@pytest.mark.parametrize(
    ("rule", "steps"),
    [("by-size", [2, 20, 40]), ("equal", [20, 20, 20]), ("inverse-size", [200, 20, 10]), (7, [7, 7, 7])],
)
def test_steps_of_clients_with_a_tenth_one_and_two_times_the_mean(rule, steps):
    assert [step_count(rule, 2, samples, 100.0, batches_of_ten) for samples in (10, 100, 200)] == steps


def test_small_clients_train_at_most_ten_times_as_much_as_average_ones():
    assert step_count("inverse-size", 1, 1, 100.0, batches_of_ten) == 100


@pytest.mark.parametrize("rule", ["by-size", "equal", "inverse-size", 7])
def test_without_samples_there_are_no_steps(rule):
    assert step_count(rule, 1, 0, 100.0, batches_of_ten) == 0


@pytest.mark.parametrize("steps", [0, "many", 1.5])
def test_other_rules_are_refused(steps):
    with pytest.raises(SpecError, match=r"train\.steps"):
        validate(TrainSettings, {"steps": steps}, "train.")


def test_epochs_and_a_number_of_steps_exclude_each_other():
    with pytest.raises(SpecError, match="epochs: has no effect with steps 5"):
        validate(TrainSettings, {"steps": 5, "epochs": 2}, "train.")
