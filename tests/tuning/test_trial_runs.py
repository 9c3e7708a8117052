"""Rungs are prefixes of the run of full length."""

from __future__ import annotations

import pickle
import sys

import pytest
import torch

import fedrelay as fr
from fedrelay.experiment.spec import EngineSettings, StopSettings, experiment
from fedrelay.runtime.run_folder_reader import RunFolderReader
from fedrelay.runtime.run_status import RunStatus
from fedrelay.tuning.score import rungs
from fedrelay.tuning.trial_runs import NO_OWN_INPUTS, OwnInputs, TrialRun, process_count

SETTINGS = {"clients": 8, "rounds": 4, "samples": 200, "validation": 0.2, "workers": 1}


@pytest.mark.parametrize(
    ("method", "more"),
    [("fedseq2par", {"fraction": 1.0}), ("scaffold", {"train": {"schedule": "cosine"}}), ("fedseqinter", {})],
)
def test_a_trial_at_every_rung_is_the_uninterrupted_run_so_far(method, more, tmp_path):
    spec = experiment(method, **SETTINGS, **more, out=tmp_path / "trial")
    whole = fr.run(method, **SETTINGS, **more, progress=False)
    for rung, end in zip(rungs(3, 4, StopSettings()), (1, 2, 4), strict=True):
        run = TrialRun("a trial", spec, rung)
        assert not run.done
        run.execute()
        assert run.done
        records = RunFolderReader.open(tmp_path / "trial")
        assert records.lines("metrics") == whole.history[:end]
        assert records.experiment.rounds == 4
        assert RunStatus.of(records).state == ("complete" if end == 4 else "stopped")
        assert run.rows() == (whole.history[:end], "")
    assert records.result["weights_sha256"] == whole.weights_sha256


def test_a_lower_rung_is_read_from_a_run_that_is_further(tmp_path):
    spec = experiment("fedavg", **SETTINGS, out=tmp_path / "trial")
    low, high = (TrialRun("a trial", spec, rung) for rung in rungs(2, 4, StopSettings()))
    high.execute()
    assert low.done
    assert [row["round"] for row in low.rows()[0]] == [1, 2]


def test_a_trial_that_was_stopped_can_be_resumed(tmp_path):
    spec = experiment("fedavg", **SETTINGS, out=tmp_path / "trial")
    TrialRun("a trial", spec, rungs(2, 4, StopSettings())[0]).execute()
    result = fr.resume(tmp_path / "trial", progress=False)
    assert result.weights_sha256 == fr.run("fedavg", **SETTINGS, progress=False).weights_sha256


def test_a_run_that_diverges_says_why(tmp_path):
    spec = experiment("fedavg", **SETTINGS, lr=1e38, out=tmp_path / "trial")
    run = TrialRun("a trial", spec, rungs(1, 4, StopSettings())[0])
    run.execute()
    assert run.done
    rows, problem = run.rows()
    assert rows == []
    assert "finite" in problem


def test_a_run_can_be_sent_to_a_process(tmp_path):
    run = TrialRun("a trial", experiment("fedavg", out=tmp_path), rungs(2, 4, StopSettings())[0])
    assert pickle.loads(pickle.dumps(run)) == run


def test_a_folder_of_other_settings_is_refused(tmp_path):
    rung = rungs(1, 2, StopSettings())[0]
    settings = {**SETTINGS, "rounds": 2, "out": tmp_path / "trial"}
    TrialRun("a trial", experiment("fedavg", **settings), rung).execute()
    assert TrialRun("a trial", experiment("fedavg", **{**settings, "workers": 2}), rung).done
    other = TrialRun("a trial", experiment("fedavg", **settings, lr=0.7), rung)
    for read in (lambda: other.done, other.rows):
        with pytest.raises(fr.RunFolderError, match="was run with other settings of train than this trial has"):
            read()
    longer = TrialRun("a trial", experiment("fedavg", **{**settings, "rounds": 3}), rung)
    with pytest.raises(fr.RunFolderError, match="other settings of rounds"):
        longer.rows()
    fr.resume(tmp_path / "trial", rounds=3, progress=False)
    assert TrialRun("a trial", experiment("fedavg", **settings), rung).done


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_runs_go_side_by_side_on_the_cpu_alone():
    local = EngineSettings(workers=3)
    assert process_count(local, ["cpu"], NO_OWN_INPUTS) == 3
    assert process_count(local, ["cpu", "cuda:1"], NO_OWN_INPUTS) == 1
    assert process_count(local.model_copy(update={"name": "ray"}), ["cpu"], NO_OWN_INPUTS) == 1
    assert process_count(local, ["cpu"], OwnInputs(module=torch.nn.Linear(1, 1))) == 1
