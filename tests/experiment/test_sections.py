"""Schedules of the learning rate, and what they refuse."""

from __future__ import annotations

import json
import math

import pytest

import fedrelay as fr
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import TrainSettings, comparison, experiment


def over_rounds(total, **schedule):
    """The factor of the learning rate in each round."""
    train = TrainSettings(lr=1.0, schedule=schedule)
    return [train.learning_rate(round, total) for round in range(1, total + 1)]


def along_chain(length, **schedule):
    train = TrainSettings(lr=1.0, chain_schedule=schedule)
    return [train.learning_rate(1, 1, hop, length) for hop in range(length)]


def test_over_rounds():
    assert over_rounds(3, name="constant") == [1, 1, 1]
    assert over_rounds(5, name="step", factor=0.5) == [1, 0.5, 0.25, 0.125, 0.0625]
    assert over_rounds(5, name="step", factor=0.5, every=2) == [1, 1, 0.5, 0.5, 0.25]
    assert over_rounds(4, name="cosine") == pytest.approx([1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2])
    assert over_rounds(2, name="cosine", floor=0.2) == pytest.approx([1, 0.6])
    assert over_rounds(5, name="warmup", rounds=3) == [0.25, 0.5, 0.75, 1, 1]
    assert over_rounds(4, name="warmup", rounds=2, then="cosine", floor=0.5) == pytest.approx([1 / 3, 2 / 3, 1, 0.75])
    assert over_rounds(2, name="warmup", rounds=5) == pytest.approx([1 / 6, 2 / 6])


def test_a_step_after_every_round_has_the_bits_of_a_power():
    train = TrainSettings(lr=0.05, schedule={"name": "step", "factor": 0.998})
    assert [train.learning_rate(round, 100) for round in (1, 2, 90)] == [0.05, 0.05 * 0.998, 0.05 * 0.998**89]
    assert train.at(90, 100) == TrainSettings(lr=0.05 * 0.998**89)


@pytest.mark.parametrize("schedule", ["constant", "cosine", {"name": "step", "factor": 0.5}])
def test_profiles_have_the_learning_rate_of_the_first_round(schedule):
    train = TrainSettings(lr=0.1, schedule=schedule)
    assert train.learning_rate(0, 9) == train.learning_rate(1, 9) == 0.1


def test_along_a_chain():
    assert along_chain(3, name="constant") == [1, 1, 1]
    assert along_chain(5, name="linear", end=0.2) == pytest.approx([1, 0.8, 0.6, 0.4, 0.2])
    assert along_chain(3, name="linear", end=2.0) == [1, 1.5, 2]
    assert along_chain(3, name="cosine", end=0.5) == pytest.approx([1, 0.75, 0.5])
    assert along_chain(1, name="cosine", end=0.5) == [1]
    both = TrainSettings(
        lr=0.8, schedule={"name": "step", "factor": 0.5}, chain_schedule={"name": "linear", "end": 0.5}
    )
    assert both.learning_rate(2, 9, 2, 3) == 0.2


@pytest.mark.parametrize(
    ("schedule", "depends"),
    [
        ("constant", False),
        ({"name": "step", "factor": 0.9}, False),
        ({"name": "warmup", "rounds": 2}, False),
        ("cosine", True),
        ({"name": "warmup", "rounds": 2, "then": "cosine"}, True),
    ],
)
def test_which_schedules_depend_on_the_last_round(schedule, depends):
    assert TrainSettings(schedule=schedule).depends_on_rounds is depends


def test_a_name_alone_or_with_options():
    short = experiment("fedavg", schedule="cosine").train
    assert short == experiment("fedavg", train={"schedule": {"name": "cosine"}}).train
    later = experiment("fedavg", **{"schedule": "cosine", "train.schedule.floor": 0.1, "chain_schedule.end": 0.5,
                                    "train.chain_schedule": "linear"}).train  # fmt: skip
    assert (later.schedule.name, later.schedule.floor) == ("cosine", 0.1)
    assert (later.chain_schedule.name, later.chain_schedule.end) == ("linear", 0.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": "step"}, "train.schedule.factor: is required with 'step', such as 0.5"),
        ({"schedule": "warmup"}, "train.schedule.rounds: is required with 'warmup', such as 5"),
        ({"schedule": {"floor": 0.1}}, "train.schedule.floor: needs a name too: cosine"),
        (
            {"schedule": {"name": "cosine", "then": "cosine"}},
            "train.schedule.then: has no effect with 'cosine'; only with warmup",
        ),
        (
            {"schedule": {"name": "warmup", "rounds": 2, "floor": 0.1}},
            "train.schedule.floor: has no effect with 'warmup'; only with cosine",
        ),
        (
            {"schedule": "cosinus"},
            "train.schedule.name: must be constant, step, cosine, warmup, or MODULE:FUNCTION (did you mean 'cosine'?), "
            "got 'cosinus'",
        ),
        ({"schedule": 5}, "train.schedule: must be a mapping of settings, got 5"),
        (
            {"schedule": {"name": "cosine", "flor": 0}},
            "train.schedule.flor: unknown key 'flor' (did you mean 'floor'?); allowed: name, every, factor, floor, "
            "rounds, then",
        ),
        ({"chain_schedule": "linear"}, "train.chain_schedule.end: is required with 'linear', such as 0.1"),
        (
            {"chain_schedule": {"end": 0.1}},
            "train.chain_schedule.end: has no effect with 'constant'; only with linear, cosine",
        ),
    ],
)
def test_refusals(settings, message):
    with pytest.raises(SpecError) as refused:
        experiment("fedavg", **settings)
    assert str(refused.value) == message


@pytest.mark.parametrize("name", ["lr_decay", "train.lr_decay"])
def test_the_old_setting_names_its_replacement(name):
    message = r"^train\.lr_decay: was replaced by train\.schedule; .* `schedule: {name: step, factor: 0\.9}`$"
    with pytest.raises(SpecError, match=message):
        experiment("fedavg", **{name: 0.9})
    with pytest.raises(SpecError, match=message):
        comparison(["fedavg"], **{name: 0.9})


@pytest.fixture
def own_rates(tmp_path, monkeypatch):
    lines = (
        "halves = lambda round, hop: 0.5 ** (round - 1) / (1 + hop)",
        "zero = lambda round, hop: 0",
        "fails = lambda round, hop: 1 / (2 - round)",
    )
    (tmp_path / "own_rates.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)


def test_a_function_of_the_users_own_gets_the_round_and_the_hop(own_rates):
    train = TrainSettings(lr=0.8, schedule="own_rates:halves", chain_schedule={"name": "linear", "end": 0.5})
    assert [train.learning_rate(round, 9) for round in (0, 1, 2, 3)] == [0.8, 0.8, 0.4, 0.2]
    assert train.learning_rate(2, 9, 1, 2) == 0.8 * 0.5 / 2 * 0.5
    assert not train.depends_on_rounds
    assert train.own_code_references == {"train.schedule": "own_rates:halves"}
    assert train.own_modules == ("own_rates",)


def test_only_the_optimizer_may_come_from_pytorch_without_being_the_users_own():
    assert TrainSettings(optimizer="torch.optim:NAdam").own_code_references == {}
    assert TrainSettings(optimizer="mylab:Lion").own_code_references == {"train.optimizer": "mylab:Lion"}
    schedule = "torch.optim.swa_utils:get_ema_avg_fn"
    assert TrainSettings(schedule=schedule).own_code_references == {"train.schedule": schedule}


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (
            "own_rates:zero",
            r"train\.schedule: own_rates:zero\(1, 0\) must return a factor of .* above 0, got 0",
        ),
        ("own_rates:nothing", "own_rates has no function 'nothing'"),
        ("no_such_module:f", r"cannot import no_such_module .*install it, or run in the folder that holds it"),
        (lambda round, hop: 1.0, "train.schedule: must be a name or MODULE:FUNCTION; workers, nodes and resume"),
        ({"name": "own_rates:halves", "floor": 0.5}, "floor: has no effect with 'own_rates:halves'; only with cosine"),
        ("cosin", r"must be constant, step, cosine, warmup, or MODULE:FUNCTION.*cosine"),
    ],
)
def test_a_schedule_that_cannot_be_used(schedule, message, own_rates, toy):
    with pytest.raises(SpecError, match=message):
        fr.run("fedavg", data=toy, rounds=2, schedule=schedule)


def test_a_run_records_its_own_schedule_and_is_extended_with_it(own_rates, toy, tmp_path):
    settings = {"data": toy, "model": "logistic", "workers": 1, "schedule": "own_rates:halves"}
    whole = fr.run("fedseq", rounds=4, **settings)
    fr.run("fedseq", rounds=2, out=tmp_path / "run", **settings)
    assert "own_rates" in json.loads((tmp_path / "run" / "run.json").read_text())["sources"]
    assert fr.resume(tmp_path / "run", data=toy, rounds=4).weights_sha256 == whole.weights_sha256
    with pytest.raises(SpecError, match=r"round 2: .*own_rates:fails\(2, 0\): ZeroDivisionError"):
        fr.run("fedavg", rounds=2, **{**settings, "schedule": "own_rates:fails"})
