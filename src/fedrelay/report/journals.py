"""Runs in other people's tools: TensorBoard event files and MLflow, both written as rounds are done.

Both follow from what the run folder has, so a run that is resumed writes no round twice and a journal can be begun at
any time: what is missing is filled in from `metrics.jsonl`.
"""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Protocol

from fedrelay.errors import RunFolderError, SpecError
from fedrelay.experiment.spec import Experiment
from fedrelay.files import write_atomically
from fedrelay.report.fate import FAILURES, Fate
from fedrelay.runtime.loop import Observer, Silent
from fedrelay.runtime.result import Row
from fedrelay.runtime.store import Records

log = logging.getLogger(__name__)

MEASURED = ("accuracy", "f1", "precision", "recall", "loss", "train_loss")
COUNTED = ("bytes", "client_updates", "s2c", "c2s", "c2c", "virtual_seconds")

LAST = "accuracy"
"""Written last of a round, so that a book that has it has all of the round."""

Ending = Literal["complete", "failed", "stopped"]
"""How a run ended: with a result, for good without one, or so that it can go on."""


class Together(Silent):
    """Several observers as one."""

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers

    def profiling(self, done: int, clients: int) -> None:
        """Everybody is told."""
        for each in self.observers:
            each.profiling(done, clients)

    def started(self, experiment: Experiment, round: int) -> None:
        """Everybody is told."""
        for each in self.observers:
            each.started(experiment, round)

    def round_done(self, round: int, row: Row | None) -> None:
        """Everybody is told."""
        for each in self.observers:
            each.round_done(round, row)

    def stopping(self) -> None:
        """Everybody is told."""
        for each in self.observers:
            each.stopping()


class Book(Protocol):
    """Where a journal is written."""

    def write(self, round: int, values: Mapping[str, float]) -> None:
        """The numbers of one round."""

    def close(self, ending: Ending) -> None:
        """Nothing more will be written, because the run ended so."""


class Journal(Silent, ABC):
    """An observer that writes every evaluated round into a book, one book for each run."""

    failures: tuple[type[Exception], ...] = (OSError,)
    """What can go wrong in a book: it is told, and the run goes on without it, unless no book could be opened yet."""

    def __init__(self) -> None:
        self.book: Book | None = None
        self.folder = Path()
        self.last = 0
        self.opened = False

    @abstractmethod
    def begin(self, experiment: Experiment, folder: Path) -> tuple[Book, int]:
        """Open the book of a run; the rounds up to the number given back are in it already."""

    def started(self, experiment: Experiment, round: int) -> None:
        """Open the book and fill in what it lacks."""
        self.close()
        assert experiment.out is not None
        self.folder = experiment.out
        try:
            self.book, self.last = self.begin(experiment, self.folder)
        except self.failures as error:
            if not self.opened:
                raise SpecError(f"{self}: does not take the run ({error})") from None
            log.warning("%s has nothing of %s (%s); resuming fills it in", self, self.folder, error)
            return
        self.opened = True
        for row in Records(self.folder).lines("metrics"):
            if row["round"] <= round:
                self.round_done(row["round"], row)

    def round_done(self, round: int, row: Row | None) -> None:
        """Write a round that was evaluated, unless it is there from before an interruption."""
        if row is None or self.book is None or round <= self.last:
            return
        try:
            self.book.write(round, dict(_numbers(row)))
        except self.failures as error:
            log.warning("%s takes no more rounds (%s); resuming fills them in", self, error)
            book, self.book = self.book, None
            with suppress(*self.failures):  # one note is enough
                book.close("stopped")

    def close(self) -> None:
        """Close the book of the last run, which has ended."""
        if self.book is None:
            return
        book, self.book = self.book, None
        try:
            book.close(_ending(self.folder))
        except self.failures as error:
            log.warning("%s may not know how %s ended (%s); resuming tells it", self, self.folder, error)

    def __str__(self) -> str:
        """Its name in messages."""
        return type(self).__name__


class TensorBoard(Journal):
    """Event files in the run folder's `tensorboard/`; they are made anew whenever a run goes on."""

    def __init__(self) -> None:
        super().__init__()
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise SpecError(
                "--tensorboard: needs the package tensorboard; pip install 'fedrelay[tensorboard]'"
            ) from None
        self.writer = SummaryWriter

    def begin(self, experiment: Experiment, folder: Path) -> tuple[Book, int]:
        """New event files in place of old ones."""
        place = folder / "tensorboard"
        for old in place.glob("events.out.tfevents.*"):
            old.unlink()
        return _Events(self.writer(str(place))), 0


class _Events:
    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def write(self, round: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, round)
        self.writer.flush()

    def close(self, ending: Ending) -> None:
        self.writer.close()


class MLflow(Journal):
    """One MLflow run for each run folder, continued where it was left; `MLFLOW_TRACKING_URI` says where to."""

    def __init__(self) -> None:
        super().__init__()
        try:
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise SpecError(_missing("mlflow", "mlflow-skinny")) from None
        from mlflow.exceptions import MlflowException

        self.client, self.failures = MlflowClient(), (OSError, ValueError, KeyError, TypeError, MlflowException)

    def begin(self, experiment: Experiment, folder: Path) -> tuple[Book, int]:
        """The run that `mlflow.json` names, or a new one with the experiment as its parameters."""
        kept = folder / "mlflow.json"
        if not kept.is_file():
            write_atomically(kept, json.dumps({"run_id": self._new(experiment)}).encode())
        run = str(json.loads(kept.read_bytes())["run_id"])
        steps = [metric.step for metric in self.client.get_metric_history(run, LAST)]
        self.client.update_run(run, status="RUNNING")
        return _Tracked(self.client, run), max(steps, default=0)

    def _new(self, experiment: Experiment) -> str:
        found = self.client.get_experiment_by_name("fedrelay")
        group = found.experiment_id if found is not None else self.client.create_experiment("fedrelay")
        name = f"{experiment.method}-seed{experiment.seed}"
        run: str = self.client.create_run(group, run_name=name).info.run_id
        for key, value in _leaves(experiment.model_dump(mode="json", exclude={"out"})):
            self.client.log_param(run, key, value)
        return run


class _Tracked:
    STATUS: Mapping[Ending, str] = {"complete": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}

    def __init__(self, client: Any, run: str) -> None:
        self.client, self.run = client, run

    def write(self, round: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1e3 * time.time())
        names = sorted(values, key=lambda name: name == LAST)
        metrics = [Metric(name.replace("/", "."), values[name], now, round) for name in names]
        self.client.log_batch(self.run, metrics)

    def close(self, ending: Ending) -> None:
        self.client.set_terminated(self.run, self.STATUS[ending])


def _missing(extra: str, package: str) -> str:
    return f"--{extra}: needs the package {package}; pip install 'fedrelay[{extra}]'"


def journals(*, tensorboard: bool, mlflow: bool) -> list[Journal]:
    """The journals that were asked for."""
    return [*([TensorBoard()] if tensorboard else []), *([MLflow()] if mlflow else [])]


@contextmanager
def together(observer: Observer, books: Sequence[Journal]) -> Iterator[Observer]:
    """An observer and journals as one; every journal is closed in the end, whatever happens."""
    with ExitStack() as closing:
        for book in books:
            closing.callback(book.close)
        yield Together(observer, *books) if books else observer


def _ending(folder: Path) -> Ending:
    """How the run of a folder ended; one whose records cannot be read has stopped, at best."""
    try:
        state = Fate.of(Records(folder)).state
    except RunFolderError:
        return "stopped"
    return "complete" if state == "complete" else "failed" if state in FAILURES else "stopped"


def _numbers(row: Row) -> Iterator[tuple[str, float]]:
    """What a round has to say: qualities by name, costs apart."""
    for prefix, names in (("", MEASURED), ("cost/", COUNTED)):
        yield from ((f"{prefix}{name}", row[name]) for name in names if isinstance(row.get(name), int | float))


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their dotted names."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
