from __future__ import annotations

import logging
import sys

import pytest

from fedrelay.tuning.optuna_study import write_studies


def test_optuna_reads_every_trial(tuned):
    optuna = pytest.importorskip("optuna")
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = JournalStorage(JournalFileBackend(str(tuned.out / "study.journal")))
    study = optuna.load_study(study_name="fedprox", storage=storage)
    choice = tuned["fedprox"].choice
    assert study.direction == optuna.study.StudyDirection.MAXIMIZE
    assert [trial.params for trial in study.trials] == [
        {"train.lr": trial.point.lr, "terms.prox.mu": trial.point.value} for trial in choice.trials
    ]
    assert [trial.value for trial in study.trials] == [trial.score.value for trial in choice.trials]
    stopped = [trial.state == optuna.trial.TrialState.PRUNED for trial in study.trials]
    assert stopped == [not trial.extension and len(trial.scores) < 2 for trial in choice.trials]
    assert [list(trial.intermediate_values) for trial in study.trials if trial.number < 4] == [
        [2, 4][: len(trial.scores)] for trial in choice.trials[:4]
    ]


def test_without_optuna_a_warning_says_how_to_get_it(tuned, monkeypatch, caplog, tmp_path):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with caplog.at_level(logging.WARNING):
        write_studies(tmp_path / "study.journal", tuned.methods, tuned.rungs, tuned.task)
    assert "study.journal was not written: Optuna is not installed; pip install 'fedrelay[tune]'" in caplog.text
    assert not (tmp_path / "study.journal").exists()
