"""Opens the federation that the `data` section of an experiment describes."""

from __future__ import annotations

from fedrelay.data.federation import DEFAULT_ALPHA, Federation, build_federation
from fedrelay.data.partition import DEFAULT_CLIENTS
from fedrelay.data.public_samples import with_public
from fedrelay.data.registry import load_dataset
from fedrelay.data.stratified_subset import subset
from fedrelay.data.synthetic import SyntheticFederation
from fedrelay.data.validation_samples import with_validation
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import DataSettings


def open_federation(data: DataSettings, seed: int) -> Federation:
    """Load the data set, partition it, and split off the validation and public samples that the settings ask for.

    Raises:
        DataError: The data set is missing, damaged or cannot be partitioned this way.
        SpecError: A setting is unknown or has no effect.
    """
    federation = with_validation(_partitioned(data, seed), data.validation, seed)
    return with_public(federation, data.public or 0, seed)


def _partitioned(data: DataSettings, seed: int) -> Federation:
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
    return build_federation(
        subset(load_dataset(data.name, data.path), data.samples, data.test_samples, seed),
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
