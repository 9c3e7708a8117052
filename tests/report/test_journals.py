from __future__ import annotations

import sys
import warnings

import pytest
from tests.report.folders import SMALL, Stopper

import fedrelay as fr
from fedrelay.report.journals import Journal, MLflow, TensorBoard, Together, together


class Kept:
    def __init__(self):
        self.rounds, self.open = {}, True

    def write(self, round, values):
        assert round not in self.rounds
        self.rounds[round] = values

    def close(self):
        self.open = False


class Shelf(Journal):
    """Keeps one book for each folder, as tools do."""

    def __init__(self, books, fresh):
        super().__init__()
        self.books, self.fresh = books, fresh

    def begin(self, experiment, folder):
        if self.fresh or folder not in self.books:
            self.books[folder] = Kept()
        return self.books[folder], max(self.books[folder].rounds, default=0)


@pytest.mark.parametrize("fresh", [True, False])
def test_no_round_is_written_twice_and_none_is_missing(tmp_path, fresh):
    books, run = {}, tmp_path / "run"
    observer = Together(Shelf(books, fresh), Stopper(2))
    with pytest.raises(KeyboardInterrupt):
        fr.run("fedavg", out=run, observer=observer, **SMALL, rounds=4, **{"checkpoint.seconds": 1000})
    assert list(books[run].rounds) == [1, 2]
    fr.resume(run, observer=Shelf(books, fresh))  # the checkpoint is that of round 0: both rounds are done again
    assert list(books[run].rounds) == [1, 2, 3, 4]


def test_a_journal_can_begin_late(tmp_path):
    books, run = {}, tmp_path / "run"
    fr.run("fedavg", out=run, **SMALL, rounds=3)
    result = fr.resume(run, observer=Shelf(books, True))
    assert list(books[run].rounds) == [1, 2, 3]
    assert books[run].rounds[3]["accuracy"] == result.accuracy
    assert books[run].rounds[3]["cost/bytes"] == result.bytes


def test_every_run_of_a_comparison_has_its_own(tmp_path):
    books = {}
    shelf = Shelf(books, True)
    with together(fr.runner.Silent(), [shelf]) as observer:
        fr.compare(["fedavg", "fedseq"], seeds=[1, 2], out=tmp_path / "all", observer=observer, **SMALL, rounds=1)
    assert len(books) == 4
    assert not any(book.open for book in books.values())


def test_a_book_that_fails_does_not_stop_the_run(tmp_path, caplog):
    class Full(Kept):
        def write(self, round, values):
            raise OSError("the disk is full")

    shelf = Shelf({tmp_path / "run": Full()}, False)
    assert fr.run("fedavg", out=tmp_path / "run", observer=shelf, **SMALL, rounds=2).complete
    assert caplog.text.count("takes no more rounds (the disk is full)") == 1


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
        with together(fr.runner.Silent(), [TensorBoard()]) as observer, pytest.raises(KeyboardInterrupt):
            fr.run("fedavg", out=run, observer=Together(observer, Stopper(2)), **SMALL, rounds=3)
        with together(fr.runner.Silent(), [TensorBoard()]) as observer:
            result = fr.resume(run, observer=observer)
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
        with together(fr.runner.Silent(), [journal := MLflow()]) as observer, pytest.raises(KeyboardInterrupt):
            fr.run("fedavg", out=run, observer=Together(observer, Stopper(2)), **SMALL, rounds=3)
        client = journal.client
        [kept] = client.search_runs([client.get_experiment_by_name("fedrelay").experiment_id])
        assert kept.data.params["data.alpha"] == "0.1"
        assert kept.info.status == "KILLED"
        with together(fr.runner.Silent(), [MLflow()]) as observer:
            fr.resume(run, observer=observer)
        history = client.get_metric_history(kept.info.run_id, "accuracy")
        assert [point.step for point in history] == [1, 2, 3]
        assert client.get_run(kept.info.run_id).info.status == "FINISHED"
