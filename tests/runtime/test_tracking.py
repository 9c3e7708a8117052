from __future__ import annotations

import csv
import json
import sys
import types
import warnings
from contextlib import suppress
from functools import partial

import pytest
from tests.report.folders import SMALL, Stopper

import fedrelay as fr
from fedrelay.runtime.callback import Callback, CombinedCallback
from fedrelay.runtime.tracking import MLflow, TensorBoard, TrackingLogger, tracking_loggers, with_loggers


class Log:
    def __init__(self):
        self.rounds, self.endings = {}, []

    def write(self, round, values):
        assert round not in self.rounds
        self.rounds[round] = values

    def close(self, ending):
        self.endings.append(ending)


class Memory(TrackingLogger):
    """Keeps one log per folder, as tools do."""

    def __init__(self, logs, fresh):
        super().__init__()
        self.logs, self.fresh = logs, fresh

    def open(self, experiment, folder):
        if self.fresh or folder not in self.logs:
            self.logs[folder] = Log()
        self.log = self.logs[folder]
        return max(self.log.rounds, default=0)

    def write(self, round, values):
        self.log.write(round, values)

    def finish(self, ending):
        self.log.close(ending)


class Refuser(Callback):
    """Somebody who pulls the plug before the first round."""

    def on_run_start(self, experiment, round):
        raise KeyboardInterrupt


@pytest.mark.parametrize("fresh", [True, False])
def test_no_round_is_written_twice_and_none_is_missing(tmp_path, fresh):
    logs, run = {}, tmp_path / "run"
    callback = CombinedCallback(Memory(logs, fresh), Stopper(2))
    with pytest.raises(KeyboardInterrupt):
        fr.run("fedavg", out=run, callbacks=callback, **SMALL, rounds=4, **{"checkpoint.seconds": 1000})
    assert list(logs[run].rounds) == [1, 2]
    fr.resume(run, callbacks=Memory(logs, fresh))  # the checkpoint is that of round 0: both rounds are done again
    assert list(logs[run].rounds) == [1, 2, 3, 4]


def test_logging_can_start_late(tmp_path):
    logs, run = {}, tmp_path / "run"
    fr.run("fedavg", out=run, **SMALL, rounds=3)
    result = fr.resume(run, callbacks=Memory(logs, True))
    assert list(logs[run].rounds) == [1, 2, 3]
    assert logs[run].rounds[3]["accuracy"] == result.accuracy
    assert logs[run].rounds[3]["cost/bytes"] == result.bytes


def test_every_run_of_a_comparison_has_its_own(tmp_path):
    logs = {}
    memory = Memory(logs, True)
    with with_loggers(Callback(), [memory]) as callback:
        fr.compare(["fedavg", "fedseq"], seeds=[1, 2], out=tmp_path / "all", callbacks=callback, **SMALL, rounds=1)
    assert len(logs) == 4
    assert all(log.endings == ["complete"] for log in logs.values())


def test_a_log_that_fails_does_not_stop_the_run(tmp_path, caplog):
    class Full(Log):
        def write(self, round, values):
            raise OSError("the disk is full")

    log = Full()
    with with_loggers(Callback(), [Memory({tmp_path / "run": log}, False)]) as callback:
        assert fr.run("fedavg", out=tmp_path / "run", callbacks=callback, **SMALL, rounds=2).complete
    assert caplog.text.count("stopped logging (the disk is full)") == 1
    assert log.endings == ["stopped"]  # as soon as it failed: it has not all of the run


def test_a_log_that_does_not_close_is_reported_and_the_next_one_closes(tmp_path, caplog):
    class Stuck(Log):
        def close(self, ending):
            raise OSError("nobody answers")

    run, last = tmp_path / "run", Log()
    with with_loggers(Callback(), [Memory({run: Stuck()}, False), Memory({run: last}, False)]) as callback:
        assert fr.run("fedavg", out=run, callbacks=callback, **SMALL, rounds=1).complete
    assert caplog.text.count(f"Memory may not know how {run} ended (nobody answers)") == 1
    assert last.endings == ["complete"]


def test_logs_know_how_runs_ended(tmp_path):
    logs, run = {}, tmp_path / "run"

    def watched(play, other=Callback):
        with with_loggers(Callback(), [Memory(logs, False)]) as memory, suppress(KeyboardInterrupt, fr.FedRelayError):
            play(callbacks=CombinedCallback(memory, other()))

    watched(partial(fr.run, "fedavg", out=run, **SMALL, rounds=3), lambda: Stopper(1))
    watched(partial(fr.resume, run), Refuser)  # before another round was written
    watched(partial(fr.resume, run))
    watched(partial(fr.resume, run))  # nothing was left to be done
    assert logs[run].endings == ["stopped", "stopped", "complete", "complete"]
    wild, lonely = tmp_path / "wild", tmp_path / "lonely"
    watched(partial(fr.run, "fedavg", out=wild, **SMALL, rounds=3, lr=1e30))
    watched(partial(fr.run, "fedavg", out=lonely, **SMALL, rounds=2, faults=[{"what": "dropout", "rate": 1.0}]))
    assert logs[wild].endings == logs[lonely].endings == ["failed"]


def test_a_first_log_that_does_not_open_is_an_error_and_a_later_one_a_warning(tmp_path, caplog):
    class Short(Memory):
        def open(self, experiment, folder):
            if len(self.logs) == self.fresh:
                raise OSError("there is no room")
            return super().open(experiment, folder)

    with pytest.raises(fr.SpecError, match=r"Short: cannot log the run \(there is no room\)"):
        fr.run("fedavg", out=tmp_path / "none", callbacks=Short({}, 0), **SMALL, rounds=1)
    one = Short({}, 1)
    fr.compare(["fedavg"], seeds=[1, 2], out=tmp_path / "one", callbacks=one, **SMALL, rounds=1)
    assert list(one.logs) == [tmp_path / "one/fedavg/seed-1"]
    assert f"Short has no log of {tmp_path}/one/fedavg/seed-2 (there is no room)" in caplog.text


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(fr.SpecError, match=r"needs the package tensorboard; pip install 'fedrelay\[tensorboard\]'"):
        TensorBoard()
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    with pytest.raises(fr.SpecError, match=r"needs the package mlflow-skinny; pip install 'fedrelay\[mlflow\]'"):
        MLflow()


def test_tensorboard_reads_what_was_written(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other people's packages
        pytest.importorskip("tensorboard", reason="tensorboard is not installed")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        run = tmp_path / "run"
        with with_loggers(Callback(), [TensorBoard()]) as callback, pytest.raises(KeyboardInterrupt):
            fr.run("fedavg", out=run, callbacks=CombinedCallback(callback, Stopper(2)), **SMALL, rounds=3)
        with with_loggers(Callback(), [TensorBoard()]) as callback:
            result = fr.resume(run, callbacks=callback)
        events = EventAccumulator(str(run / "tensorboard")).Reload()
        points = events.Scalars("accuracy")
    assert [point.step for point in points] == [1, 2, 3]
    assert points[-1].value == pytest.approx(result.accuracy)


def test_mlflow_has_parameters_and_rounds(tmp_path, monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other people's packages
        pytest.importorskip("mlflow", reason="mlflow is not installed")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        run = tmp_path / "run"
        with with_loggers(Callback(), [logger := MLflow()]) as callback, pytest.raises(KeyboardInterrupt):
            fr.run("fedavg", out=run, callbacks=CombinedCallback(callback, Stopper(2)), **SMALL, rounds=3)
        client = logger.client
        [kept] = client.search_runs([client.get_experiment_by_name("fedrelay").experiment_id])
        assert kept.data.params["data.alpha"] == "0.1"
        assert kept.info.status == "KILLED"
        with with_loggers(Callback(), [MLflow()]) as callback, pytest.raises(KeyboardInterrupt):
            fr.resume(run, callbacks=CombinedCallback(callback, Refuser()))
        assert client.get_run(kept.info.run_id).info.status == "KILLED"  # though no round is missing so far
        with with_loggers(Callback(), [MLflow()]) as callback:
            fr.resume(run, callbacks=callback)
        history = client.get_metric_history(kept.info.run_id, "accuracy")
        assert [point.step for point in history] == [1, 2, 3]
        assert client.get_run(kept.info.run_id).info.status == "FINISHED"


def test_mlflow_says_that_a_run_failed_or_that_its_end_is_missing(tmp_path, monkeypatch, caplog):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other people's packages
        pytest.importorskip("mlflow", reason="mlflow is not installed")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        with with_loggers(Callback(), [logger := MLflow()]) as callback, pytest.raises(fr.DivergedError):
            fr.run("fedavg", out=tmp_path / "wild", callbacks=callback, **SMALL, rounds=3, lr=1e30)
        client, wild = logger.client, json.loads((tmp_path / "wild/mlflow.json").read_bytes())["run_id"]
        assert client.get_run(wild).info.status == "FAILED"

        def refused(run, metrics):
            raise OSError("nobody answers")

        with with_loggers(Callback(), [logger := MLflow()]) as callback:
            monkeypatch.setattr(logger.client, "log_batch", refused)
            assert fr.run("fedavg", out=tmp_path / "run", callbacks=callback, **SMALL, rounds=2).complete
        run = json.loads((tmp_path / "run/mlflow.json").read_bytes())["run_id"]
        assert "MLflow stopped logging (nobody answers)" in caplog.text
        assert client.get_run(run).info.status == "KILLED"
        with with_loggers(Callback(), [MLflow()]) as callback:
            fr.resume(tmp_path / "run", callbacks=callback)
        assert [point.step for point in client.get_metric_history(run, "accuracy")] == [1, 2]
        assert client.get_run(run).info.status == "FINISHED"


def test_loggers_are_callbacks_in_python(tmp_path):
    settings = {**SMALL, "rounds": 2, "progress": False}
    result = fr.run(
        "fedavg", out=tmp_path / "run", callbacks=[fr.CsvMetrics(), Memory(logs := {}, fresh=True)], **settings
    )
    with (tmp_path / "run" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["round"]) for row in rows] == [1, 2]
    assert [float(row["accuracy"]) for row in rows] == [row["accuracy"] for row in result.history]
    assert int(rows[-1]["cost/bytes"]) == result.bytes
    [log] = logs.values()
    assert (list(log.rounds), log.endings) == ([1, 2], ["complete"])  # closed without a call
    fr.resume(tmp_path / "run", rounds=3, callbacks=fr.CsvMetrics(), progress=False)
    assert (tmp_path / "run" / "metrics.csv").read_text().count("\n") == 4
    with pytest.raises(fr.SpecError, match=r"^CsvMetrics: a log needs a run folder; set out="):
        fr.run("fedavg", callbacks=fr.CsvMetrics(), **settings)


def test_loggers_have_names():
    assert [str(each) for each in tracking_loggers(["csv", "csv"])] == ["CsvMetrics"]
    with pytest.raises(
        fr.SpecError, match=r"--log: unknown logger 'cvs' \(did you mean 'csv'\?\); allowed: tensorboard"
    ):
        tracking_loggers(["cvs"])


class FakeWandB(types.ModuleType):
    """What the logger uses of Weights & Biases; runs are kept by their ids."""

    class Error(Exception):
        pass

    def __init__(self):
        super().__init__("wandb")
        self.runs, self.Settings = {}, dict

    def init(self, *, id, config, dir, **more):
        id = id or f"id-{len(self.runs)}"
        log = self.runs.setdefault(id, types.SimpleNamespace(id=id, steps={}, codes=[], config=config, dir=dir))
        log.log = lambda values, step: log.steps.__setitem__(step, values)
        log.finish = lambda exit_code: log.codes.append(exit_code)
        return log


def test_weights_and_biases_continue_where_they_ended(tmp_path, monkeypatch):
    tool = FakeWandB()
    monkeypatch.setitem(sys.modules, "wandb", tool)
    with pytest.raises(KeyboardInterrupt):
        fr.run("fedavg", out=tmp_path / "run", callbacks=[fr.WandB(), Stopper(1)], **SMALL, rounds=3)
    result = fr.resume(tmp_path / "run", callbacks=fr.WandB())
    [log] = tool.runs.values()
    assert sorted(log.steps) == [1, 2, 3]
    assert log.steps[3]["accuracy"] == result.accuracy
    assert (log.codes, log.dir, log.config["method"]) == ([1, 0], str(tmp_path / "run"), "fedavg")
    assert json.loads((tmp_path / "run" / "wandb.json").read_text()) == {"run_id": "id-0", "round": 3}


@pytest.mark.slow
def test_weights_and_biases_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fr.run("fedavg", out=tmp_path / "run", callbacks=fr.WandB(), **SMALL, rounds=2)
        fr.resume(tmp_path / "run", rounds=3, callbacks=fr.WandB())
    kept = json.loads((tmp_path / "run" / "wandb.json").read_text())
    assert kept["round"] == 3
    files = list((tmp_path / "run" / "wandb").glob(f"offline-run-*-{kept['run_id']}/run-{kept['run_id']}.wandb"))
    assert files
    assert all(file.stat().st_size > 0 for file in files)
