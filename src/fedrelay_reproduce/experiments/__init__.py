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
from fedrelay_reproduce.records import load_record, record_path
from fedrelay_reproduce.tuning import with_tuned_settings

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
    experiment: ClaimExperiment,
    scale: Scale,
    seeds: Sequence[int],
    out: Path,
    device: str | None = None,
    records: Path | None = None,
) -> ExperimentRuns:
    """The runs of an experiment at a scale, in its folder below `out`, or else as its record below `records` says."""
    spec = merged(experiment.spec(scale), {"train": {"device": device}} if device is not None else {})
    if (tuning := experiment.tuning(scale)) is not None:
        spec = with_tuned_settings(spec, tuning)
    record = load_record(record_path(records, scale, experiment.folder), spec) if records is not None else None
    runs = KINDS[experiment.kind](experiment.folder, out / scale / experiment.folder, spec, tuple(seeds), record)
    try:
        _ = runs.names
    except fr.SpecError as error:
        raise fr.SpecError(f"experiment {experiment.folder}: {error}") from None
    return runs
