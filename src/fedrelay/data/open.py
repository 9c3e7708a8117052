"""From the `data` section of an experiment to a federation."""

from __future__ import annotations

from fedrelay.data.federation import DEFAULT_ALPHA, Federation, build_federation
from fedrelay.data.partition import DEFAULT_CLIENTS
from fedrelay.data.public import with_public
from fedrelay.data.registry import load_dataset
from fedrelay.data.subset import subset
from fedrelay.data.synthetic import SyntheticFederation
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import DataSettings


def open_federation(data: DataSettings, seed: int) -> Federation:
    """Load the data set, deal it out and put the public set apart, if one is asked for."""
    return with_public(_dealt_out(data, seed), data.public or 0, seed)


def _dealt_out(data: DataSettings, seed: int) -> Federation:
    if data.name == "synthetic":
        useless = {
            "path": data.path,
            "samples": data.samples,
            "test_samples": data.test_samples,
            "partition": data.partition,
            "shifts": data.shifts,
            "test_shifts": data.test_shifts,
        }
        for name, value in useless.items():
            if value:
                raise SpecError(f"data.{name}: has no effect on synthetic data, whose clients are made one by one")
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
