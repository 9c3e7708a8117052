"""Opens the federation that the `data` section of an experiment describes."""

from __future__ import annotations

from pathlib import Path

from fedrelay.data.dataset import Dataset
from fedrelay.data.federation import DEFAULT_ALPHA, ArrayFederation, Federation, build_federation
from fedrelay.data.holdout import with_holdout
from fedrelay.data.partition import DEFAULT_CLIENTS
from fedrelay.data.public_samples import with_public
from fedrelay.data.registry import load_dataset
from fedrelay.data.stratified_subset import subset
from fedrelay.data.synthetic import SyntheticFederation
from fedrelay.data.table_column_reader import TABLE_FILES
from fedrelay.data.table_federation import open_table
from fedrelay.data.validation_samples import with_validation
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import DataSettings, TableSettings


def open_federation(data: DataSettings, seed: int, task: str | None = None) -> Federation:
    """Load the data set, partition it, and split off held-out, validation and public samples as the settings say.

    Args:
        data: The settings.
        seed: Seed of the partition and of all samples that are split off.
        task: The name of the task, if the experiment names one: it decides how the targets of a table or an
            `.npz` file are read.

    Raises:
        DataError: The data set is missing, damaged or cannot be partitioned this way.
        SpecError: A setting is unknown or has no effect.
    """
    federation = with_holdout(_partitioned(data, seed, task), data.holdout, seed)
    federation = with_validation(federation, data.validation, seed)
    return with_public(federation, data.public or 0, seed)


def table_path(data: DataSettings) -> Path | None:
    """The table that the settings mean; None for other data.

    Raises:
        SpecError: The table has no path, or two.
    """
    if data.name.lower().endswith(TABLE_FILES):
        if data.path is not None:
            raise SpecError(
                f"data.path: has no effect, because data.name is the file {data.name!r}; remove {data.path}"
            )
        return Path(data.name)
    if data.name == "table" and data.path is None:
        raise SpecError("data.path: is required with data.name 'table': a .csv or .parquet file")
    return data.path if data.name == "table" else None


def _partitioned(data: DataSettings, seed: int, task: str | None) -> Federation:
    if (path := table_path(data)) is not None:
        return open_table(path, data.table, task, lambda rows: _distributed(rows, data, seed))
    if data.table != TableSettings():
        raise SpecError(f"data.table: has no effect with {data.name!r}; only with a .csv or .parquet file")
    if data.name == "synthetic":
        unused = {
            "path": data.path,
            "samples": data.samples,
            "test_samples": data.test_samples,
            "partition": data.partition,
            "shifts": data.shifts,
            "test_shifts": data.test_shifts,
        }
        for name, value in unused.items():
            if value:
                raise SpecError(f"data.{name}: has no effect with synthetic data; remove it")
        alpha = DEFAULT_ALPHA if data.alpha is None else data.alpha
        return SyntheticFederation(data.clients or DEFAULT_CLIENTS, alpha, data.beta, seed)
    return _distributed(load_dataset(data.name, data.path, task), data, seed)


def _distributed(dataset: Dataset, data: DataSettings, seed: int) -> ArrayFederation:
    """The wanted part of a data set, divided among clients."""
    return build_federation(
        subset(dataset, data.samples, data.test_samples, seed),
        clients=data.clients,
        partition=data.partition,
        alpha=data.alpha,
        seed=seed,
        shards_per_client=data.shards_per_client,
        shard_size=data.shard_size,
        min_samples=data.min_samples,
        shifts=data.shifts,
        test_shifts=data.test_shifts,
    )
