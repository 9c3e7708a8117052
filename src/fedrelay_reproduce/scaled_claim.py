"""A claim at one scale: its runs, its criterion applied to them, and the verdict."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import fedrelay as fr
from fedrelay.data.registry import DATASETS
from fedrelay_reproduce.claim import Claim, Scale
from fedrelay_reproduce.criteria import Condition, Measured, Results
from fedrelay_reproduce.experiments import ExperimentRuns, open_runs
from fedrelay_reproduce.verdicts import CheckResult, Verdict, judge


@dataclass(frozen=True)
class ScaledClaim:
    """A claim, ready to be run and judged."""

    claim: Claim
    scale: Scale
    seeds: tuple[int, ...]
    experiments: Mapping[str, ExperimentRuns]

    @property
    def obstacle(self) -> str | None:
        """Why the claim cannot be run here."""
        missing = dict.fromkeys(each.missing_data for each in self.experiments.values() if each.missing_data)
        wanted = "; ".join(f"{name}, from {DATASETS[name].origin}" for name in missing)
        return f"data not found: {wanted} ('fedrelay data' says where they are sought)" if missing else None

    @property
    def finished(self) -> dict[str, ExperimentRuns]:
        """The experiments of which no run is left. Where a claim has a verdict, only supplements may be missing."""
        return {name: each for name, each in self.experiments.items() if all(run.done for run in each.runs)}

    def judge(self) -> tuple[Verdict, list[CheckResult]]:
        """The verdict by the runs that are there, and every check with its numbers."""
        return judge([self._conditions(self._results(seed)) for seed in self.seeds])

    def used(self) -> dict[str, dict[str, list[str]]]:
        """What the criterion uses: experiment → method or grouping → measures.

        Raises:
            SpecError: if the criterion uses a method, grouping or measure that does not exist.
        """
        probes = {name: _Probe(runs.names) for name, runs in self.experiments.items()}
        try:
            self._conditions(probes)
        except (AttributeError, TypeError, fr.SpecError) as error:
            raise fr.SpecError(f"claim {self.claim.number}: criterion: {error}") from None
        return {name: {each: list(probe[each].values) for each in probe.asked} for name, probe in probes.items()}

    @property
    def _judged(self) -> list[str]:
        """The experiments that the criterion uses."""
        return [*inspect.signature(self.claim.criterion).parameters]

    def _conditions(self, results: Mapping[str, Results]) -> Sequence[Condition]:
        return self.claim.criterion(**{name: results[name] for name in self._judged})

    def _results(self, seed: int) -> dict[str, Results]:
        found = {}
        for name in self._judged:
            runs = self.experiments[name]
            measured = {each: runs.measured(each, seed) for each in runs.names}
            if self.claim.diverged == "inconclusive":  # nothing is known of a run that failed
                measured = {each: replace(of, curve=()) if of.problem else of for each, of in measured.items()}
            found[name] = Results(measured)
        return found


class _Probe(Results):
    """Results without numbers, which note what a criterion asks for."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__({name: Measured(name, _NotedMeasures()) for name in names})
        self.asked: dict[str, None] = {}

    def __getitem__(self, name: str) -> Measured:
        found = super().__getitem__(name)
        self.asked[name] = None
        return found


class _NotedMeasures(dict[str, float | None]):
    def get(self, name: str, default: object = None) -> None:
        self[name] = None


def scaled_claim(
    claim: Claim,
    scale: Scale,
    out: Path,
    seeds: int | None = None,
    device: str | None = None,
    records: Path | None = None,
) -> ScaledClaim:
    """A claim at a scale, with its runs below `out`.

    Args:
        claim: the claim.
        scale: the scale.
        out: the folder of all runs.
        seeds: how many, if not as the claim says.
        device: where training runs, if not as the claim says.
        records: a folder with results of runs that are not below `out`.
    """
    numbers = tuple(range(1, claim.seed_count(scale, seeds) + 1))
    runs = {
        name: open_runs(each, scale, numbers[: each.seeds], out, device, records)
        for name, each in claim.experiments_at(scale).items()
    }
    scaled = ScaledClaim(claim, scale, numbers, runs)
    scaled.used()
    return scaled
