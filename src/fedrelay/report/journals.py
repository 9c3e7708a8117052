"""Runs in other people's tools: TensorBoard event files and MLflow, both written as rounds are done.

Both follow from what the run folder has, so a run that is resumed writes no round twice and a journal can be begun at
any time: what is missing is filled in from `metrics.jsonl`.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from fedrelay.errors import SpecError
from fedrelay.files import write_atomically
from fedrelay.result import Row
from fedrelay.runner import Observer, Silent
from fedrelay.spec import Experiment
from fedrelay.store import Records

log = logging.getLogger(__name__)

MEASURED = ("accuracy", "f1", "precision", "recall", "loss", "train_loss")
COUNTED = ("bytes", "client_updates", "s2c", "c2s", "c2c", "virtual_seconds")


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

    def close(self) -> None:
        """All is written."""


class Journal(Silent, ABC):
    """An observer that writes every evaluated round into a book, one book for each run."""

    failures: tuple[type[Exception], ...] = (OSError,)
    """What can go wrong in a book; it is told, and the run goes on without it."""

    def __init__(self) -> None:
        self.book: Book | None = None
        self.last = 0

    @abstractmethod
    def begin(self, experiment: Experiment, folder: Path) -> tuple[Book, int]:
        """Open the book of a run; the rounds up to the number given back are in it already."""

    def started(self, experiment: Experiment, round: int) -> None:
        """Open the book and fill in what it lacks."""
        self.close()
        assert experiment.out is not None
        self.book, self.last = self.begin(experiment, experiment.out)
        for row in Records(experiment.out).lines("metrics"):
            if row["round"] <= round:
                self.round_done(row["round"], row)

    def round_done(self, round: int, row: Row | None) -> None:
        """Write a round that was evaluated, unless it is there from before an interruption."""
        if row is None or self.book is None or round <= self.last:
            return
        try:
            self.book.write(round, dict(_numbers(row)))
        except self.failures as error:
            log.warning("%s takes no more rounds (%s); resuming fills them in", type(self).__name__, error)
            self.book = None

    def close(self) -> None:
        """Close the book of the last run."""
        if self.book is not None:
            self.book.close()
        self.book = None


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

    def close(self) -> None:
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
        try:
            if not kept.is_file():
                write_atomically(kept, json.dumps({"run_id": self._new(experiment)}).encode())
            run = str(json.loads(kept.read_bytes())["run_id"])
            steps = [metric.step for metric in self.client.get_metric_history(run, "accuracy")]
            self.client.update_run(run, status="RUNNING")
        except self.failures as error:
            raise SpecError(f"--mlflow: the run cannot be tracked ({error})") from None
        return _Tracked(self.client, run, experiment.rounds), max(steps, default=0)

    def _new(self, experiment: Experiment) -> str:
        found = self.client.get_experiment_by_name("fedrelay")
        group = found.experiment_id if found is not None else self.client.create_experiment("fedrelay")
        name = f"{experiment.method}-seed{experiment.seed}"
        run: str = self.client.create_run(group, run_name=name).info.run_id
        for key, value in _leaves(experiment.model_dump(mode="json", exclude={"out"})):
            self.client.log_param(run, key, value)
        return run


class _Tracked:
    def __init__(self, client: Any, run: str, rounds: int) -> None:
        self.client, self.run, self.rounds, self.last = client, run, rounds, 0

    def write(self, round: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.client.log_metric(self.run, name.replace("/", "."), value, step=round)
        self.last = round

    def close(self) -> None:
        self.client.set_terminated(self.run, "FINISHED" if self.last in (0, self.rounds) else "KILLED")


def _missing(extra: str, package: str) -> str:
    return f"--{extra}: needs the package {package}; pip install 'fedrelay[{extra}]'"


def journals(*, tensorboard: bool, mlflow: bool) -> list[Journal]:
    """The journals that were asked for."""
    return [*([TensorBoard()] if tensorboard else []), *([MLflow()] if mlflow else [])]


@contextmanager
def together(observer: Observer, books: Sequence[Journal]) -> Iterator[Observer]:
    """An observer and journals as one; journals are closed in the end, whatever happens."""
    try:
        yield Together(observer, *books) if books else observer
    finally:
        for book in books:
            book.close()


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
