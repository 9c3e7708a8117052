"""Loggers for TensorBoard, MLflow, Weights & Biases and CSV files, written after every evaluated round.

Missing rounds are filled in from `metrics.jsonl`. So a resumed run logs no round twice, and logging can start late.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from fedrelay.errors import RunFolderError, SpecError
from fedrelay.experiment.error_messages import unknown
from fedrelay.experiment.spec import Experiment, dotted_settings
from fedrelay.files import write_atomically
from fedrelay.runtime.callback import Callback, CombinedCallback, RoundContext
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.result import Result
from fedrelay.runtime.run_folder_reader import RunFolderReader
from fedrelay.runtime.run_status import FAILURES, RunStatus

log = logging.getLogger(__name__)

COUNTED = ("bytes", "client_updates", "s2c", "c2s", "c2c", "virtual_seconds")

LAST = "cost/client_updates"
"""Written last in a round, whatever its metrics: if a round has it, the round is complete."""

Ending = Literal["complete", "failed", "stopped"]
"""How a run ended: with a result, without one, or resumable."""


class TrackingLogger(Callback, ABC):
    """A callback that logs every evaluated round, with one log per run."""

    failures: tuple[type[Exception], ...] = (OSError,)
    """Errors of the tool. The first log must open; later errors are logged and the run continues."""

    def __init__(self) -> None:
        self.run: Path | None = None
        """The last run that was started."""
        self.folder: Path | None = None
        """The run whose log is open."""
        self.last = 0
        self.opened = False

    @abstractmethod
    def open(self, experiment: Experiment, folder: Path) -> int:
        """Open the log of a run; return the last round that is already logged."""

    @abstractmethod
    def write(self, round: int, values: Mapping[str, float]) -> None:
        """Write the numbers of one round."""

    @abstractmethod
    def finish(self, ending: Ending) -> None:
        """Finish the log; `ending` says how the run ended."""

    def on_run_start(self, experiment: Experiment, round: int) -> None:
        """Open the log and write the rounds that are missing."""
        self.close()
        if experiment.out is None:
            raise SpecError(f"{self}: a log needs a run folder; set out='…'")
        self.run = experiment.out
        try:
            self.last = self.open(experiment, experiment.out)
        except self.failures as error:
            if not self.opened:
                raise SpecError(f"{self}: cannot log the run ({error})") from None
            log.warning("%s has no log of %s (%s); resume the run to fill it in", self, experiment.out, error)
            return
        self.folder, self.opened = experiment.out, True
        for row in RunFolderReader(self.folder).lines("metrics"):
            if row["round"] <= round:
                self._log(row)

    def on_round_end(self, context: RoundContext) -> None:
        """Log an evaluated round."""
        if context.row is not None:
            self._log(context.row)

    def on_run_end(self, result: Result) -> None:
        """Log what is missing: all rounds of a run that was complete, or the last round of one that was stopped."""
        if self.run != result.run:
            self.on_run_start(result.experiment, result.rounds)
        for row in result.history:
            self._log(row)

    def _log(self, row: Row) -> None:
        """Log the row of a round, unless it is logged already."""
        if self.folder is None or row["round"] <= self.last:
            return
        try:
            self.write(row["round"], dict(_numbers(row)))
            self.last = row["round"]
        except self.failures as error:
            log.warning("%s stopped logging (%s); resume the run to fill in the missing rounds", self, error)
            self.folder = None
            with suppress(*self.failures):  # one warning is enough
                self.finish("stopped")

    def close(self) -> None:
        """Finish the log of the last run."""
        if self.folder is None:
            return
        folder, self.folder = self.folder, None
        try:
            self.finish(_ending(folder))
        except self.failures as error:
            log.warning("%s may not know how %s ended (%s); resume the run to correct it", self, folder, error)

    def __str__(self) -> str:
        return type(self).__name__


class TensorBoard(TrackingLogger):
    """Event files in the run folder's `tensorboard/`; written again whenever a run continues."""

    def __init__(self) -> None:
        super().__init__()
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise SpecError(_missing("tensorboard", "tensorboard")) from None
        self.summary_writer = SummaryWriter

    def open(self, experiment: Experiment, folder: Path) -> int:
        place = folder / "tensorboard"
        for old in place.glob("events.out.tfevents.*"):
            old.unlink()
        self.writer: Any = self.summary_writer(str(place))
        return 0

    def write(self, round: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, round)
        self.writer.flush()

    def finish(self, ending: Ending) -> None:
        self.writer.close()


class MLflow(TrackingLogger):
    """One MLflow run per run folder, continued on resume; `MLFLOW_TRACKING_URI` sets the server."""

    STATUS: Mapping[Ending, str] = {"complete": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}

    def __init__(self) -> None:
        super().__init__()
        try:
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise SpecError(_missing("mlflow", "mlflow-skinny")) from None
        from mlflow.exceptions import MlflowException

        self.client, self.failures = MlflowClient(), (OSError, ValueError, KeyError, TypeError, MlflowException)

    def open(self, experiment: Experiment, folder: Path) -> int:
        """Continue the run that `mlflow.json` names, or create one with the experiment as its parameters."""
        kept = folder / "mlflow.json"
        if not kept.is_file():
            write_atomically(kept, json.dumps({"run_id": self._new(experiment)}).encode())
        self.id = str(json.loads(kept.read_bytes())["run_id"])
        steps = [metric.step for metric in self.client.get_metric_history(self.id, _mlflow_name(LAST))]
        self.client.update_run(self.id, status="RUNNING")
        return max(steps, default=0)

    def _new(self, experiment: Experiment) -> str:
        found = self.client.get_experiment_by_name("fedrelay")
        group = found.experiment_id if found is not None else self.client.create_experiment("fedrelay")
        name = f"{experiment.method}-seed{experiment.seed}"
        run: str = self.client.create_run(group, run_name=name).info.run_id
        for key, value in dotted_settings(experiment.model_dump(mode="json", exclude={"out"})):
            self.client.log_param(run, key, value)
        return run

    def write(self, round: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1e3 * time.time())
        names = sorted(values, key=lambda name: name == LAST)
        metrics = [Metric(_mlflow_name(name), values[name], now, round) for name in names]
        self.client.log_batch(self.id, metrics)

    def finish(self, ending: Ending) -> None:
        self.client.set_terminated(self.id, self.STATUS[ending])


class WandB(TrackingLogger):
    """One Weights & Biases run per run folder, continued on resume; `WANDB_MODE=offline` logs without a network.

    Example:
        `fr.run("fedseq", out="runs/mine", callbacks=fr.WandB())`; its files are in `runs/mine/wandb`.
    """

    def __init__(self) -> None:
        super().__init__()
        try:
            import wandb
        except ImportError:
            raise SpecError(_missing("wandb", "wandb")) from None
        self.wandb, self.failures = wandb, (OSError, ValueError, KeyError, TypeError, wandb.Error)

    def open(self, experiment: Experiment, folder: Path) -> int:
        """Continue the run that `wandb.json` names, from the last round that it has, or start one."""
        self.kept = folder / "wandb.json"
        known = json.loads(self.kept.read_bytes()) if self.kept.is_file() else {}
        last = int(known.get("round", 0))
        settings = dict(dotted_settings(experiment.model_dump(mode="json", exclude={"out"})))
        self.log: Any = self.wandb.init(
            project="fedrelay", id=known.get("run_id"), resume="allow", reinit="finish_previous",
            name=f"{experiment.method}-seed{experiment.seed}", dir=str(folder), config=settings,
            settings=self.wandb.Settings(console="off", silent=True),
        )  # fmt: skip
        self.id = str(self.log.id)
        self._keep(last)
        return last

    def _keep(self, round: int) -> None:
        write_atomically(self.kept, json.dumps({"run_id": self.id, "round": round}).encode())

    def write(self, round: int, values: Mapping[str, float]) -> None:
        self.log.log(dict(values), step=round)
        self._keep(round)

    def finish(self, ending: Ending) -> None:
        self.log.finish(exit_code=0 if ending == "complete" else 1)


class CsvMetrics(TrackingLogger):
    """`metrics.csv` in the run folder, one row for each evaluated round; the numbers are those of `metrics.jsonl`.

    Example:
        `fr.run("fedseq", out="runs/mine", callbacks=fr.CsvMetrics())`; then `pandas.read_csv("runs/mine/metrics.csv")`.
    """

    def open(self, experiment: Experiment, folder: Path) -> int:
        self.path, self.rows = folder / "metrics.csv", list[dict[str, float]]()
        return 0

    def write(self, round: int, values: Mapping[str, float]) -> None:
        self.rows.append({"round": round, **values})
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        text = io.StringIO()
        table = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows)
        write_atomically(self.path, text.getvalue().encode())

    def finish(self, ending: Ending) -> None:
        """Every row is written already."""


LOGGERS: Mapping[str, type[TrackingLogger]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
    "csv": CsvMetrics,
}
"""The loggers by the names that `--log` takes."""


def _mlflow_name(name: str) -> str:
    return name.replace("/", ".")


def _missing(extra: str, package: str) -> str:
    return f"{extra}: needs the package {package}; pip install 'fedrelay[{extra}]'"


def tracking_loggers(names: Sequence[str]) -> list[TrackingLogger]:
    """Create the requested loggers, each once.

    Raises:
        SpecError: a name is unknown, or the tool's package is not installed.
    """
    for name in names:
        if name not in LOGGERS:
            raise SpecError(f"--log: {unknown('logger', name, LOGGERS)}")
    return [LOGGERS[name]() for name in dict.fromkeys(names)]


def loggers_of(callbacks: object) -> list[TrackingLogger]:
    """The loggers among the callbacks that a caller gave, one or several."""
    several = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
    return [each for each in several if isinstance(each, TrackingLogger)]


@contextmanager
def with_loggers(callback: Callback, loggers: Sequence[TrackingLogger]) -> Iterator[Callback]:
    """Combine a callback with loggers, and close all loggers at the end."""
    with ExitStack() as closing:
        for logger in loggers:
            closing.callback(logger.close)
        yield CombinedCallback(callback, *loggers) if loggers else callback


def _ending(folder: Path) -> Ending:
    """How the run of a folder ended; a run with unreadable records counts as stopped."""
    try:
        state = RunStatus.of(RunFolderReader(folder)).state
    except RunFolderError:
        return "stopped"
    return "complete" if state == "complete" else "failed" if state in FAILURES else "stopped"


def _numbers(row: Row) -> Iterator[tuple[str, float]]:
    """The metrics of a round by name, also those of callbacks, and its costs as `cost/NAME`."""
    for name, value in row.items():
        if name != "round" and isinstance(value, int | float):
            yield f"cost/{name}" if name in COUNTED else name, value
