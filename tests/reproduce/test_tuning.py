"""Tuning for claims: which trials there are, what they are scored by, and how claims use what was chosen."""

from __future__ import annotations

import json

import pytest

import fedrelay as fr
from fedrelay_reproduce import ClaimExperiment, ClaimTuning, tuning
from fedrelay_reproduce.claims.c15_fedgsp import TUNING
from fedrelay_reproduce.tuning import EXTENSIONS, RATES, Trial, best_of, close_trials, search, tune, with_tuned_settings


def trials(scores, hyperparameter=None):
    """All trials of a search whose scores are a function of the settings."""
    going = search(hyperparameter or {})
    wanted = next(going)
    while True:
        try:
            wanted = going.send([scores(settings) for settings in wanted])
        except StopIteration as end:
            return end.value


def test_the_grid_is_tried_and_goes_on_where_the_best_is_at_its_edge():
    inside = trials(lambda settings: -abs(settings["train.lr"] - 0.03))
    assert [trial.settings["train.lr"] for trial in inside] == list(RATES)
    assert best_of(inside).settings == {"train.lr": 0.03}
    above = trials(lambda settings: settings["train.lr"])
    assert [trial.settings["train.lr"] for trial in above][len(RATES) :] == [0.95, 3.0]
    assert len(above) == len(RATES) + EXTENSIONS
    below = trials(lambda settings: -abs(settings["train.lr"] - 0.001))
    assert [trial.settings["train.lr"] for trial in below][len(RATES) :] == [0.00095, 0.0003]


def test_a_hyperparameter_is_tried_with_the_best_learning_rate():
    found = trials(
        lambda settings: -abs(settings["train.lr"] - 0.1) - abs(settings.get("merge.lr", 0.1) - 1),
        {"merge.lr": (0.01, 1.0)},
    )
    assert [trial.settings for trial in found[len(RATES) :]] == [
        {"train.lr": 0.1, "merge.lr": 0.01},
        {"train.lr": 0.1, "merge.lr": 1.0},
    ]
    assert best_of(found).settings == {"train.lr": 0.1, "merge.lr": 1.0}


def test_a_trial_that_diverged_is_the_worst():
    found = trials(lambda settings: None if settings["train.lr"] > 0.02 else settings["train.lr"])
    assert best_of(found).settings == {"train.lr": 0.01}


def test_runs_are_the_beginning_of_the_full_run_on_validation_samples(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "RATES", (0.01, 0.1))
    experiment = ClaimExperiment(
        "15/toy",
        {"methods": ["fedavg"], "data": {"name": "digits", "clients": 5, "samples": 200}, "rounds": 6, "fraction": 1},
    )
    wanted = ClaimTuning("toy", experiment, scale="small")
    found = tune(wanted, tmp_path, processes=1)["fedavg"].trials
    run = tmp_path / "tuning" / "toy" / "fedavg" / "lr_0.1"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2]  # a third of six rounds
    scores = [row["validation_accuracy"] for row in rows]
    assert next(trial.score for trial in found if trial.settings["train.lr"] == 0.1) == pytest.approx(sum(scores) / 2)
    assert tune(wanted, tmp_path, processes=1)["fedavg"].trials == found  # nothing is done twice


def test_finished_trials_are_kept_without_their_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "RATES", (0.01, 0.1))
    monkeypatch.setattr(tuning, "EXTENSIONS", 0)
    spec = {"methods": ["fedavg"], "data": {"name": "digits", "clients": 5, "samples": 200}, "rounds": 3, "fraction": 1}
    wanted = ClaimTuning("toy", ClaimExperiment("15/toy", spec), scale="small")
    found = tune(wanted, tmp_path / "runs", 1, tmp_path / "results")
    kept = json.loads((tmp_path / "results" / "tuning" / "toy.json").read_text())
    tuned = found["fedavg"]
    assert list(kept["scores"].values()) == [trial.score for trial in (*tuned.trials, *tuned.whole)]
    assert tune(wanted, tmp_path / "elsewhere", 1, tmp_path / "results") == found
    assert not (tmp_path / "elsewhere").exists()
    other = ClaimTuning("toy", ClaimExperiment("15/toy", {**spec, "fraction": 0.5}), scale="small")
    tune(other, tmp_path / "elsewhere", 1, tmp_path / "results")  # scores of other settings do not count
    assert (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("scores", "close"),
    [
        ([0.5, 0.46, 0.4], [0, 1]),
        ([0.3, 0.46, 0.5], [2, 1]),
        ([0.5, 0.44], []),
        ([0.5, None], []),
        ([0.5], []),
        ([None, None], []),
        ([0.5, 0.5], [0, 1]),
    ],
)
def test_the_best_two_trials_are_done_again_if_they_are_close(scores, close):
    trials = [Trial({"train.lr": float(number)}, score) for number, score in enumerate(scores)]
    assert close_trials(trials) == [trials[number] for number in close]


def test_whole_runs_choose_between_close_trials(tmp_path, monkeypatch):
    """A rate that is too small is far behind; of the other two, whole runs choose."""
    monkeypatch.setattr(tuning, "RATES", (1e-6, 0.1, 0.2))
    monkeypatch.setattr(tuning, "EXTENSIONS", 0)
    monkeypatch.setattr(tuning, "CLOSE", 0.5)
    data = {"name": "digits", "clients": 5}
    short = ClaimExperiment("15/toy", {"methods": ["fedavg"], "data": data, "rounds": 3, "fraction": 1})
    wanted = ClaimTuning("toy", short, share=1, whole=short.but("15/whole", {"rounds": 5}), scale="small")
    found = tune(wanted, tmp_path / "runs", 1, tmp_path / "results")["fedavg"]
    assert [each.settings["train.lr"] for each in found.whole] == sorted((0.1, 0.2), key=_scores(found.trials))
    assert found.chosen == max(found.whole, key=lambda trial: trial.score)
    run = tmp_path / "runs" / "tuning" / "toy-whole" / "fedavg" / "lr_0.1"
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 5
    kept = json.loads((tmp_path / "results" / "tuning" / "toy.json").read_text())["scores"]
    assert kept["fedavg, lr 0.1, whole run"] == next(t.score for t in found.whole if t.settings["train.lr"] == 0.1)
    longer = ClaimTuning("toy", short, share=1, whole=short.but("15/whole", {"rounds": 6}), scale="small")
    tune(longer, tmp_path / "longer", 1, tmp_path / "results")  # scores of other whole runs do not count
    assert (tmp_path / "longer" / "tuning" / "toy-whole").is_dir()


def test_trials_that_are_whole_runs_are_not_done_again(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "RATES", (0.1, 0.2))
    monkeypatch.setattr(tuning, "EXTENSIONS", 0)
    monkeypatch.setattr(tuning, "CLOSE", 0.5)
    spec = {"methods": ["fedavg"], "data": {"name": "digits", "clients": 5}, "rounds": 1, "fraction": 1}
    found = tune(ClaimTuning("toy", ClaimExperiment("15/toy", spec), share=1, scale="small"), tmp_path, 1)["fedavg"]
    assert close_trials(found.trials)
    assert found.whole == []


def _scores(trials):
    """Best first."""
    return lambda rate: -next(trial.score for trial in trials if trial.settings["train.lr"] == rate)


def test_claims_take_what_was_chosen_for_a_label_a_method_or_its_beginning(monkeypatch):
    chosen = {"methods": {"fedseq": {"settings": {"train.lr": 0.5}}, "fast": {"settings": {"train.lr": 0.7}}}}
    monkeypatch.setattr(tuning, "tuned_settings", lambda name: chosen)
    methods = ["fedavg", {"method": "fedseq", "label": "random", "train": {"clip": 1}}, "fedseq+feddyn"]
    spec = {"methods": [*methods, {"method": "fedavg", "label": "fast"}], "train": {"lr": 0.1}}
    assert with_tuned_settings(spec, "toy")["methods"] == [
        "fedavg",
        {"method": "fedseq", "label": "random", "train": {"clip": 1, "lr": 0.5}},
        {"method": "fedseq+feddyn", "train": {"lr": 0.5}},
        {"method": "fedavg", "label": "fast", "train": {"lr": 0.7}},
    ]
    assert spec["methods"][:3] == methods


def test_methods_that_are_not_tuned_yet_are_refused():
    with pytest.raises(fr.SpecError, match=r"not tuned yet: run 'python -m fedrelay_reproduce.tuning nothing' first"):
        tuning.tuned_settings("nothing")


def test_one_hyperparameter_of_few_values():
    with pytest.raises(fr.SpecError, match="fedadam: tune one setting beside the learning rate, of at most 4 values"):
        ClaimTuning("toy", TUNING.experiment, {"fedadam": {"merge.lr": (1, 2, 3, 4, 5)}})


def test_every_scale_has_its_own_tuning_and_only_comparisons_have_one():
    plain = ClaimExperiment("1/plain", {"methods": ["fedavg"]}, tuned={"medium": "toy"})
    assert (plain.tuning("medium"), plain.tuning("small")) == ("toy", None)
    assert plain.but("1/other", {}).tuning("medium") == "toy"
    assert plain.but("1/own", {}, tuned={"medium": "own"}).tuning("medium") == "own"
    assert plain.but("1/groups", {"groupings": {}}, kind="groups").tuning("medium") is None
