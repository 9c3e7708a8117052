"""The kinds of experiments, one file each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import fedrelay as fr
from fedrelay_reproduce.claim import ClaimExperiment, Kind, Scale, merged
from fedrelay_reproduce.experiments.base import ClaimRun, ExperimentRuns
from fedrelay_reproduce.experiments.comparison import ComparisonRuns
from fedrelay_reproduce.experiments.groups import GroupComparison
from fedrelay_reproduce.experiments.image_recovery import ImageRecovery
from fedrelay_reproduce.experiments.transfers import TransferCounts

__all__ = [
    "ClaimRun",
    "ComparisonRuns",
    "ExperimentRuns",
    "GroupComparison",
    "ImageRecovery",
    "TransferCounts",
    "open_runs",
]

KINDS: Mapping[Kind, type[ExperimentRuns]] = {
    "comparison": ComparisonRuns,
    "groups": GroupComparison,
    "transfers": TransferCounts,
    "image-recovery": ImageRecovery,
}


def open_runs(
    experiment: ClaimExperiment, scale: Scale, seeds: Sequence[int], out: Path, device: str | None = None
) -> ExperimentRuns:
    """The runs of an experiment at a scale, in its folder below `out`."""
    spec = merged(experiment.spec(scale), {"train": {"device": device}} if device is not None else {})
    runs = KINDS[experiment.kind](experiment.folder, out / scale / experiment.folder, spec, tuple(seeds))
    try:
        _ = runs.names
    except fr.SpecError as error:
        raise fr.SpecError(f"experiment {experiment.folder}: {error}") from None
    return runs
