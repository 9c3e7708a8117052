"""What terms, losses and tasks cost where several models are trained as one batched model, and whether they are.

    .venv/bin/python benchmarks/batched_models.py           print the table
    .venv/bin/python benchmarks/batched_models.py --turns 5 measure each case more often
    .venv/bin/python benchmarks/batched_models.py --smoke   a few cases, one round

Each case is compared with plain training, the first case of its table: the same data, model and number of steps. All
cases of a table take turns in one process, and the fastest turn counts, in seconds of CPU time of a whole run. One run
with `engine.lanes=1` trains one model at a time; the last column is the largest difference of the weights that the two
end with, relative to the largest weight.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

import fedrelay as fr
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment
from fedrelay.local.batched_trainer import batched_model_for
from fedrelay.runtime.round_loop import run_prepared

LANES = 8
TURNS = 3


@dataclass(frozen=True)
class Case:
    """A run that differs from plain training in a few settings."""

    title: str
    method: str = "fedavg"
    settings: Mapping[str, Any] = field(default_factory=dict)
    federation: Callable[[], fr.Federation] | None = None
    """Data that no setting names."""

    def run(self, common: Mapping[str, Any], lanes: int) -> Measured:
        """Run it in this process."""
        settings = {**common, **self.settings, "engine": {"workers": 1, "lanes": lanes}}
        own = None if self.federation is None else self.federation()
        if own is not None:
            settings["data"] = {"name": own.name, "clients": own.client_count}
        ready = prepare(experiment(self.method, **settings), federation=own)
        batched = batched_model_for(ready.prepared.job())[0] is not None
        began = time.process_time()
        result = run_prepared(ready)
        return Measured(time.process_time() - began, batched, result.weights)


@dataclass(frozen=True)
class Measured:
    """The outcome of a run."""

    seconds: float
    batched: bool
    weights: Tensor

    def difference(self, other: Measured) -> float:
        """The largest difference of two weights, relative to the largest weight."""
        return float((self.weights - other.weights).abs().max() / other.weights.abs().max())


@dataclass(frozen=True)
class Table:
    """Cases with the same data and model; the first is plain training."""

    title: str
    common: Mapping[str, Any]
    cases: Sequence[Case]

    def lines(self, turns: int) -> list[str]:
        """The table in Markdown."""
        one_by_one = [case.run(self.common, lanes=1) for case in self.cases]
        found = [[case.run(self.common, LANES) for case in self.cases] for _ in range(turns)]
        fastest = [min(runs, key=lambda run: run.seconds) for runs in zip(*found, strict=True)]
        plain, rows = fastest[0].seconds, []
        for case, batched, alone in zip(self.cases, fastest, one_by_one, strict=True):
            cells = (
                case.title,
                "yes" if batched.batched else "no",
                f"{batched.seconds:.2f}",
                f"{batched.seconds / plain:.2f}",
                f"{alone.seconds:.2f}",
                f"{batched.difference(alone):.0e}",
            )
            rows.append(f"| {' | '.join(cells)} |")
        head = f"| {self.title} | batched | seconds | × plain | one at a time | difference |"
        return [head, "|---|---|---:|---:|---:|---:|", *rows]


def numbers(target: Callable[[NDArray[np.float32]], NDArray[Any]]) -> Callable[[], fr.Federation]:
    """Ten clients with 1,000 rows of 16 numbers, and targets that follow from ten sums of them."""

    def federation() -> fr.Federation:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(1100, 16)).astype(np.float32)
        y = target(x @ rng.normal(size=(16, 10)).astype(np.float32))
        return fr.federate(x[:1000], y[:1000], x[1000:], y[1000:], clients=10, partition="iid")

    return federation


COMMON = {"rounds": 10, "fraction": 1.0, "seed": 1, "eval": {"every": 10}, "train": {"batch_size": 16, "lr": 0.05}}
DIGITS = {**COMMON, "data": {"name": "digits", "clients": 16, "partition": "iid"}, "model": {"name": "mlp"}}
IMAGES = {**DIGITS, "model": {"name": "cnn-s"}, "rounds": 4, "eval": {"every": 4}}
ROWS = {**COMMON, "model": {"name": "mlp"}}


def trained_with(**settings: Any) -> dict[str, Any]:
    return {"train": {**COMMON["train"], **settings}}  # type: ignore[dict-item]


SLOW = trained_with(lr=0.001)
PLAIN = Case("plain: `fedavg`")
TERMS = (
    PLAIN,
    Case("class weights", settings={"task": {"class_weights": "balanced"}}),
    Case("label smoothing", settings={"task": {"label_smoothing": 0.1}}),
    Case("momentum", settings=trained_with(momentum=0.9)),
    Case("Adam", settings=trained_with(optimizer="adam", lr=0.001)),
    Case("`fedprox`", "fedprox"),
    Case("`scaffold`", "scaffold"),
    Case("`ewc`", "fedavg+ewc"),
    Case("`glam`", "fedavg+glam"),
    Case("`moon`, no projection head", "moon", {"terms": {"contrast": {"projection": 0, "mu": 1}}}),
    Case("`fedmmd`", "fedmmd"),
    Case("`fedmmd` on features", "fedmmd", {"terms": {"mmd": {"outputs": "features"}}}),
    Case("`fedsam`", "fedsam"),
    Case("`fedfusion`", "fedfusion"),
)
ROTATIONS = (Case("plain: `spfl`", "spfl"), Case("`spfl+glam`", "spfl+glam"))
HEADS = (
    Case("plain: the same layers", settings={"model": {"name": "mlp", "hidden": (64, 64, 256)}}),
    Case("`moon`, which adds the last two", "moon"),
)
TASKS = (
    Case("plain: classification", federation=numbers(lambda sums: sums.argmax(1))),
    Case("binary", settings={"task": "binary"}, federation=numbers(lambda sums: (sums[:, 0] > 0).astype(int))),
    Case(
        "multi-label", settings={"task": "multilabel"}, federation=numbers(lambda sums: (sums > 0).astype(np.float32))
    ),
    Case(
        "regression", settings={"task": "regression", **trained_with(lr=0.001)}, federation=numbers(lambda sums: sums)
    ),
)
SMOKE = {**DIGITS, "rounds": 1, "eval": {"every": 1}, "data": {"name": "digits", "clients": 4, "samples": 200}}

TABLES = (
    Table("digits, `mlp`", DIGITS, TERMS),
    Table("digits, `cnn-s`", IMAGES, TERMS),
    Table("digits, `mlp` with a projection head", DIGITS, HEADS),
    Table("rotations, `mlp`", {**DIGITS, "rounds": 2, "eval": {"every": 2}}, ROTATIONS),
    Table("rows of numbers, `mlp`", ROWS, TASKS),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=TURNS, help="how often each case is measured")
    parser.add_argument("--smoke", action="store_true", help="a few cases, one round")
    wanted = parser.parse_args()
    tables = (Table("digits, `mlp`", SMOKE, (PLAIN, *TERMS[8:11])),) if wanted.smoke else TABLES
    for table in tables:
        print("\n".join(table.lines(1 if wanted.smoke else wanted.turns)), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
