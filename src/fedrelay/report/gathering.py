"""From folders to what is shown: the runs of comparisons and single runs, whatever state they are in.

Nothing is locked and nothing is changed, so a run can be looked at while it is under way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch

from fedrelay.cost.ledger import KINDS
from fedrelay.errors import RunFolderError
from fedrelay.experiment.spec import Comparison, Experiment
from fedrelay.report.fate import FAILURES, Failure, Fate
from fedrelay.runtime.comparison import SPEC, ComparisonResult, MethodResults, load_comparison
from fedrelay.runtime.result import Result, Row
from fedrelay.runtime.store import Records

Status = Literal["waiting", "running", "complete", "unfinished", "diverged", "fruitless"]


@dataclass(frozen=True)
class Seen:
    """One run as its folder shows it at this moment."""

    records: Records
    experiment: Experiment
    status: Status
    why: str = ""
    """What went wrong, where something did."""

    @cached_property
    def ledger(self) -> list[Row]:
        """What travelled, round by round; round 0 is what was done before the first."""
        return self.records.lines("ledger")

    @cached_property
    def history(self) -> list[Row]:
        """All evaluations."""
        return self.records.lines("metrics")

    @cached_property
    def events(self) -> list[Row]:
        """Faults and what was done about them."""
        return self.records.lines("events")

    @property
    def rounds(self) -> int:
        """How many rounds are done."""
        return int(self.ledger[-1]["round"]) if self.ledger else 0

    @property
    def seed(self) -> int:
        """The seed it was started with."""
        return self.experiment.seed

    @cached_property
    def result(self) -> Result:
        """What it has come to so far; the model is left where it is."""

        def total(name: str) -> Any:
            return sum(line.get(name, 0) for line in self.ledger)

        summary = self.records.result or {}
        return Result(
            experiment=self.experiment,
            history=self.history,
            weights=torch.zeros(0),
            model={},
            rounds=self.rounds,
            client_updates=total("client_updates"),
            longest_route=max((line["longest_route"] for line in self.ledger), default=0),
            transfers={kind: total(kind) for kind in KINDS},
            bytes=total("bytes"),
            seconds=summary.get("seconds") or sum(line["seconds"] for line in self.records.lines("timings")),
            virtual_seconds=total("virtual_seconds"),
            idle_seconds=total("idle_seconds"),
            computing_seconds=total("computing_seconds"),
            communicating_seconds=total("communicating_seconds"),
            run=self.records.path,
        )


@dataclass(frozen=True)
class Party:
    """Runs that differ in nothing but the seed, under one name."""

    name: str
    method: str
    runs: tuple[Seen, ...]
    seeds: tuple[int, ...]
    """All that are to be run, begun or not."""

    @property
    def evaluated(self) -> tuple[Seen, ...]:
        """The runs of which there is something to see; what failed is shown as failed, not as a curve."""
        return tuple(run for run in self.runs if run.history and run.status not in FAILURES)


@dataclass(frozen=True)
class Gathering:
    """Everything that was asked for, party by party."""

    paths: tuple[Path, ...]
    comparison: Comparison
    parties: tuple[Party, ...]

    @property
    def runs(self) -> Iterator[tuple[int, Seen]]:
        """All runs, each with the number of its party."""
        yield from ((number, run) for number, party in enumerate(self.parties) for run in party.runs)

    @cached_property
    def outcome(self) -> ComparisonResult:
        """The same as a comparison, so far."""
        return ComparisonResult(self.comparison, tuple(_contender(party) for party in self.parties))


def gather(paths: Sequence[Path]) -> Gathering:
    """Look at folders of runs and comparisons."""
    parties: list[Party] = []
    comparisons = []
    single: dict[Path, Seen] = {}
    for path in paths:
        if (path / SPEC).is_file():
            comparisons.append(load_comparison(path))
            parties += _compared(path, comparisons[-1])
        else:
            single.setdefault(path.resolve(), look_at(path))
    parties += _joined(single.values())
    settings = comparisons[0] if len(paths) == len(comparisons) == 1 else _common(parties)
    return Gathering(tuple(paths), settings, tuple(_with_names_of_their_own(parties)))


def _common(parties: Sequence[Party]) -> Comparison:
    """What accuracies of single runs are measured against; nobody runs it."""
    first = next((party.runs[0].experiment for party in parties if party.runs), None)
    if first is None:
        return Comparison.model_construct(methods=(), seeds=())
    return Comparison.model_construct(methods=(), seeds=(), eval=first.eval, data=first.data)


def look_at(path: Path, failed: tuple[Failure, str] | None = None) -> Seen:
    """One run folder; how and why it failed is told where that is known, else read off its events."""
    records = Records.open(path)
    status, why = _state(records, failed)
    return Seen(records, records.experiment, status, why)


def _state(records: Records, failed: tuple[Failure, str] | None) -> tuple[Status, str]:
    if records.result is not None:
        return "complete", ""
    if records.under_way:
        return "running", ""
    if failed is not None:
        return failed
    fate = Fate.of(records)
    for failure in FAILURES:
        if fate.state == failure:
            return failure, fate.why
    return "unfinished", ""


def _compared(folder: Path, comparison: Comparison) -> Iterator[Party]:
    """The methods of a comparison, with those of their runs that have begun."""
    failures = _known_failures(folder)
    for entrant in comparison.methods:
        failed = failures.get(entrant.name, {})
        places = {seed: folder / entrant.folder / f"seed-{seed}" for seed in comparison.seeds}
        begun = {seed: place for seed, place in places.items() if (place / "run.json").is_file()}
        runs = tuple(look_at(place, failed.get(seed)) for seed, place in begun.items())
        yield Party(entrant.name, entrant.method, runs, comparison.seeds)


def _known_failures(folder: Path) -> dict[str, dict[int, tuple[Failure, str]]]:
    """Method → seed → how it failed and why, as the results of a comparison have it."""
    path = folder / "results.json"
    try:
        methods = json.loads(path.read_bytes())["methods"] if path.is_file() else {}
        return {name: dict(_reasons(facts)) for name, facts in methods.items()}
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise RunFolderError(f"{path}: is damaged ({error})") from None


def _reasons(facts: Mapping[str, Any]) -> Iterator[tuple[int, tuple[Failure, str]]]:
    for failure in FAILURES:
        for reason in facts.get(failure, ()):
            seed, _, why = reason.partition(": ")
            yield int(seed.split()[1]), (failure, why)


def _joined(runs: Iterable[Seen]) -> Iterator[Party]:
    """Single runs; those that differ in their seeds alone belong together."""
    alike: dict[str, dict[int, Seen]] = {}
    for run in runs:
        key = run.experiment.model_dump_json(exclude={"seed", "out"})
        while run.seed in alike.get(key, {}):  # the same experiment twice stays apart
            key += "+"
        alike.setdefault(key, {})[run.seed] = run
    for found in alike.values():
        yield Party(next(iter(found.values())).experiment.method, "", tuple(found.values()), tuple(found))


def _with_names_of_their_own(parties: Sequence[Party]) -> Iterator[Party]:
    """Names that occur twice get the folder beside them, and a number where that is not enough."""
    names = [party.name for party in parties]
    taken: set[str] = set()
    for party in parties:
        name = party.name
        if names.count(name) > 1 and party.runs:
            name = f"{party.name} ({party.runs[0].records.path.name})"
        number, free = 2, name
        while free in taken:
            free, number = f"{name} {number}", number + 1
        taken.add(free)
        yield Party(free, party.method or party.name, party.runs, party.seeds)


def _contender(party: Party) -> MethodResults:
    diverged, fruitless = (
        tuple(f"seed {run.seed}: {run.why}" for run in party.runs if run.status == failure) for failure in FAILURES
    )
    return MethodResults(party.name, party.method, tuple(run.result for run in party.evaluated), diverged, fruitless)
