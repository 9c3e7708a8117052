"""Whole tunings: what is written, what is chosen, and that interruptions change nothing."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest
from tests.tuning.tiny import tiny_tuning

import fedrelay as fr
from fedrelay.experiment.spec import Experiment, load_file, validate
from fedrelay.runtime.comparison_result import load_comparison
from fedrelay.runtime.run_folder_reader import RunFolderReader
from fedrelay.tuning.run_tuning import load_tuning, run_tuning
from fedrelay.tuning.trial_runs import OwnInputs, TrialRun


def choices(result):
    return [(each.name, each.choice) for each in result.methods]


def test_everything_is_in_the_folder(tuned):
    assert load_tuning(tuned.out) == tuned.tuning
    names = {path.name for path in tuned.out.iterdir()}
    assert {"tuning.yaml", "trials", "best", "recommended.yaml", "comparison"} <= names
    for method in tuned.methods:
        path = tuned.out / "best" / f"{method.name}.yaml"
        assert path.read_text().startswith(f"# fedrelay run {path}\n")
        found = validate(Experiment, load_file(path))
        assert found.train.lr == method.choice.best.point.lr
        assert (found.method, found.rounds, found.data.validation) == (method.name, 4, 0.3)
    assert validate(Experiment, load_file(tuned.out / "recommended.yaml")).method == tuned.recommended.name


def test_trials_see_validation_samples_and_tuning_seeds_only(tuned):
    folders = sorted((tuned.out / "trials").glob("*/*/*/run.json"))
    assert {path.parent.name for path in folders} == {"seed-1"}
    compared = {path.parent.name for path in (tuned.out / "comparison").glob("*/*/run.json")}
    assert compared == {"seed-7", "seed-8"}
    for method in tuned.methods:
        for trial in method.choice.trials:
            rows = RunFolderReader(tuned.out / "trials" / method.name / f"trial-{trial.number:02}" / "seed-1").lines(
                "metrics"
            )
            assert trial.score.value == max(row["validation_accuracy"] for row in rows)


def test_every_method_starts_equally_many_trials_to_the_same_rounds(tuned):
    done = {
        method.name: sorted(len(trial.scores) for trial in method.choice.trials if not trial.extension)
        for method in tuned.methods
    }
    assert done == {"fedavg": [1, 1, 2, 2], "fedprox": [1, 1, 2, 2]}


def test_the_comparison_has_the_chosen_settings(tuned):
    for entry, method in zip(tuned.comparison.comparison.methods, tuned.methods, strict=True):
        assert entry.train == {"lr": method.choice.best.point.lr}
    assert [len(each.results) for each in tuned.comparison.methods] == [2, 2]
    best = tuned.recommended
    assert best.scores == tuple(result.best.row["accuracy"] for result in tuned.comparison[best.name].results)


def test_running_it_again_does_nothing_and_comes_to_the_same(tuned, monkeypatch):
    monkeypatch.setattr(TrialRun, "execute", lambda *_: pytest.fail("a trial ran again"))
    assert choices(run_tuning(tuned.tuning, tuned.out)) == choices(tuned)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A tuning of one method that was not interrupted."""
    tuning = tiny_tuning(methods=["fedavg"], rounds=2, seeds=[7], tune={"trials": 3, "extensions": 0})
    return run_tuning(tuning, tmp_path_factory.mktemp("short") / "here")


def test_ctrl_c_keeps_what_was_done(short, tmp_path, monkeypatch):
    ran, execute = [], TrialRun.execute

    def interrupted(run, own):
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(run.title)
        execute(run, own)

    monkeypatch.setattr(TrialRun, "execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_tuning(short.tuning, tmp_path / "here")
    monkeypatch.setattr(TrialRun, "execute", lambda run, own: ran.append(run.title) or execute(run, own))
    result = run_tuning(load_tuning(tmp_path / "here"), tmp_path / "here")
    assert choices(result) == choices(short)
    assert len(ran) == len(set(ran)) == 3 + 2  # nothing ran twice


def test_kill_9_and_resume_come_to_the_same_choice(short, tmp_path, warm_python):
    (tmp_path / "here").mkdir()
    for name in ("tuning.yaml", "inputs.json"):
        (tmp_path / "here" / name).write_text((short.out / name).read_text())
    process = warm_python.start("-m", "fedrelay", "resume", "here", "--quiet", folder=tmp_path)
    wanted = tmp_path / "here/trials/fedavg/trial-02/seed-1/metrics.jsonl"
    while not wanted.is_file() and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "here" / "recommended.yaml").exists()
    result = run_tuning(load_tuning(tmp_path / "here"), tmp_path / "here")
    assert choices(result) == choices(short)
    assert result.recommended == short.recommended


def test_another_tuning_in_the_same_folder_is_refused(tuned):
    with pytest.raises(fr.RunFolderError, match="is not empty and holds something else"):
        run_tuning(tiny_tuning(rounds=5), tuned.out)


def test_nothing_is_written_if_the_tuning_cannot_start(tmp_path):
    with pytest.raises(fr.DataError):
        run_tuning(tiny_tuning(data={"name": "nowhere.npz", "samples": None}), tmp_path / "here")
    assert not (tmp_path / "here").exists()


def test_a_method_whose_trials_all_fail_is_left_out(tmp_path):
    wild = {"method": "fedavg", "label": "wild", "train": {"lr": 1e37}}
    tuning = tiny_tuning(methods=[wild, "fedavg"], tune={"trials": 2, "rungs": 1, "extensions": 0})
    result = run_tuning(tuning, tmp_path / "here")
    assert result["wild"].failed
    assert [each.name for each in result.standings] == ["fedavg"]
    [warning] = [each for each in result.warnings if each.startswith("wild")]
    assert "no trial came to its end" in warning
    with pytest.raises(fr.DivergedError, match="no trial of any method came to its end"):
        run_tuning(tiny_tuning(methods=[wild], tune=tuning.tune.model_dump()), tmp_path / "there")


def test_what_was_spent_beyond_the_budget_is_said(tmp_path):
    tune = {"extensions": 0, "trials": 2, "rungs": 1}
    everybody = {"method": "fedavg", "label": "everybody", "fraction": 1}
    tuning = tiny_tuning(methods=["fedavg", everybody], rounds=4, stop={"max_updates": 4}, tune=tune)
    said = [each for each in run_tuning(tuning, tmp_path / "here").warnings if "over the budget" in each]
    assert said == [
        "everybody: over the budget, as a run ends after the round that reaches a limit; "
        "stop.max_updates: 6 client updates were done, the limit is 4"
    ]


@pytest.mark.parametrize(("patience", "said"), [(None, 1), (1, 0)])
def test_more_rounds_are_advised_only_if_all_were_done(tmp_path, patience, said):
    tune = {"extensions": 0, "trials": 2, "rungs": 1}
    stop = {"max_updates": 10**6, "patience": patience}
    tuning = tiny_tuning(methods=["fedavg"], rounds=12, seeds=[7], stop=stop, tune=tune)
    result = run_tuning(tuning, tmp_path / "here")
    [run] = result.comparison["fedavg"].results
    assert (run.rounds == 12) == bool(said)
    assert sum("rounds are within the budget" in each for each in result.warnings) == said


def test_costs_to_a_target(tmp_path):
    tune = {"objective": "updates", "extensions": 0, "trials": 2, "rungs": 1}
    reached = tiny_tuning(methods=["fedavg"], rounds=2, stop={"target": 0.01}, tune=tune)
    result = run_tuning(reached, tmp_path / "here")
    assert result["fedavg"].choice.best.score.cost == 1  # one client takes part in a round
    assert result.recommended.costs == (1.0, 1.0)
    missed = tiny_tuning(methods=["fedavg"], rounds=1, stop={"target": 1.0}, tune=tune)
    assert run_tuning(missed, tmp_path / "there").recommended.cost is None


def test_data_of_your_own(tmp_path):
    digits = fr.load_data("digits", clients=6, samples=200, test_samples=60)
    common = {"rounds": 2, "trials": 2, "workers": 1, "seeds": [3], "progress": False}
    tune = {"seeds": [1], "rungs": 1, "extensions": 0}
    result = fr.tune(["fedavg"], data=digits, **common, tune=tune, out=tmp_path / "here")
    assert isinstance(result, fr.TuningResult)
    assert repr(result) == "TuningResult(recommended='fedavg', methods=1)"
    assert Path(tmp_path / "here" / "report.html").is_file()
    with pytest.raises(KeyError, match="no method 'moon'; the tuning has fedavg"):
        result["moon"]
    with pytest.raises(
        fr.RunFolderError, match=r"was started with data of your own; .* fedrelay\.tune\(…, data=…, out="
    ):
        run_tuning(load_tuning(result.out), result.out)


def test_data_of_your_own_cannot_join_a_tuning_later(tuned):
    own = OwnInputs(fr.load_data("digits", clients=6))
    with pytest.raises(
        fr.RunFolderError, match="was started with nothing of your own; continue it with 'fedrelay resu"
    ):
        run_tuning(tuned.tuning, tuned.out, own=own)


SCRIPT = """
import fedrelay as fr
from fedrelay.tuning import trial_runs

print("once")
trial_runs.cores = lambda: 2

class Everybody(fr.Routing):
    def plan(self, context, round):
        return fr.RoundPlan(round, tuple(fr.Route((client,)) for client in range(context.client_count)))

fr.register("mine", summary="all clients side by side", route=Everybody)
tune = {"seeds": [1], "rungs": 1, "extensions": 0}
fr.tune(["mine"], clients=6, samples=100, rounds=1, trials=2, seeds=[7], tune=tune, out="here", progress=False)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_script_needs_no_guard_and_goes_on_with_another_number_of_cores(tmp_path, warm_python):
    (tmp_path / "script.py").write_text(SCRIPT)
    for cores in (2, 1):
        script = SCRIPT.replace("cores = lambda: 2", f"cores = lambda: {cores}")
        (tmp_path / "script.py").write_text(script)
        process = warm_python.run("script.py", folder=tmp_path)
        assert process.wait() == 0, process.err
        assert process.out == "once\n"
    engines = [RunFolderReader(path.parent).experiment.engine.workers for path in tmp_path.rglob("run.json")]
    assert engines == [1, 1, 1]
    assert load_comparison(tmp_path / "here" / "comparison").engine.workers == 0
