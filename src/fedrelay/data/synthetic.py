"""Synthetic(α, β) of the FedProx paper (Li et al. 2020): each client has its own linear model and inputs.

    u_k ~ N(0, α)    W_k, b_k ~ N(u_k, 1)
    B_k ~ N(0, β)    v_k ~ N(B_k, 1)    x ~ N(v_k, diag(j^-1.2))    y = argmax(W_k x + b_k)

α controls how much the clients' models differ, β how much their inputs differ. As in the authors' code, both are
standard deviations, sizes are 50 plus a log-normal number, and 9 of 10 samples are for training. α = β = 0 is not IID,
because W_k, b_k and v_k still differ; the paper's Synthetic-IID, with one model and one input distribution for all, is
`iid=True`.

Deviations: a client's samples are generated whenever they are needed, from the client's own random key, so a federation
of any size costs nothing to create. Sizes are capped. The test set has the held-out samples of a limited number of
random clients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.data.federation import Kind, ShortRepr, class_counts, digest
from fedrelay.data.partition import Ints
from fedrelay.data.samples import Samples
from fedrelay.errors import SpecError
from fedrelay.rng import generator

Rows = tuple[NDArray[np.float32], Ints]


@dataclass(frozen=True)
class LogNormalSizes:
    """Samples per client: `least` plus a log-normal number, at most `most`. With `log_std=0` all are equal."""

    least: int = 50
    log_mean: float = 4.0
    log_std: float = 2.0
    most: int = 100_000

    def __post_init__(self) -> None:
        if not 2 <= self.least <= self.most or not self.log_std >= 0 or not math.isfinite(self.log_mean):
            raise SpecError(f"sizes must have 2 ≤ least ≤ most, log_std ≥ 0 and a finite log_mean, got {self}")

    def draw(self, clients: int, rng: np.random.Generator) -> Ints:
        """The sizes of `clients` clients. More clients do not change the sizes of the first."""
        extra = np.minimum(rng.lognormal(self.log_mean, self.log_std, clients), self.most - self.least)
        return self.least + extra.astype(np.int64)


@dataclass(frozen=True, repr=False)
class SyntheticFederation(ShortRepr):
    """A federation of any number of clients whose samples are generated when needed."""

    client_count: int
    alpha: float = 1.0
    beta: float = 1.0
    seed: int = 1
    size_rule: LogNormalSizes = LogNormalSizes()
    class_count: int = 10
    features: int = 60
    iid: bool = False
    test_clients: int = 200

    def __post_init__(self) -> None:
        for name in ("client_count", "class_count", "features", "test_clients"):
            if getattr(self, name) < 1:
                raise SpecError(f"synthetic: {name} must be at least 1, got {getattr(self, name)}")
        for name in ("alpha", "beta"):
            if not 0 <= getattr(self, name) < math.inf:
                raise SpecError(f"synthetic: {name} must be a finite number ≥ 0, got {getattr(self, name)}")
        if self.iid and (self.alpha or self.beta):
            raise SpecError(f"synthetic: iid needs alpha 0 and beta 0, got {self.alpha} and {self.beta}")

    @property
    def name(self) -> str:
        """The name in the paper."""
        return "synthetic-iid" if self.iid else f"synthetic({self.alpha:g},{self.beta:g})"

    @property
    def kind(self) -> Kind:
        return "tabular"

    @property
    def task(self) -> str:
        return "classification"

    @property
    def in_memory(self) -> bool:
        return True

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return (self.features,)

    @property
    def target_shape(self) -> tuple[int, ...]:
        return ()

    def sample_count(self, client: int) -> int:
        """The number of train samples of one client; does not generate them."""
        return int(self._sample_counts[self._checked(client)])

    def sample_counts(self) -> Ints:
        return self._sample_counts.copy()

    def train_samples(self, client: int) -> Samples:
        x, y = self._generate(client)
        size = self.sample_count(client)
        return Samples(torch.from_numpy(x[:size]), torch.from_numpy(y[:size]))

    def histogram(self, client: int) -> Ints:
        _, y = self._generate(client)
        return class_counts(y[: self.sample_count(client)], self.class_count)

    @cached_property
    def test(self) -> Samples:
        """The held-out samples of `test_clients` random clients, or of all."""
        clients = generator(self.seed, "synthetic", "test").choice(
            self.client_count, min(self.client_count, self.test_clients), replace=False
        )
        held_out = [[rows[self.sample_count(k) :] for rows in self._generate(k)] for k in np.sort(clients).tolist()]
        x, y = (np.concatenate(parts) for parts in zip(*held_out, strict=True))
        return Samples(torch.from_numpy(x), torch.from_numpy(y))

    def fingerprint(self) -> str:
        """A hash of the parameters, which determine all samples."""
        return digest(self)

    @cached_property
    def _totals(self) -> Ints:
        return self.size_rule.draw(self.client_count, generator(self.seed, "synthetic", "sizes"))

    @cached_property
    def _sample_counts(self) -> Ints:
        return self._totals * 9 // 10

    def _checked(self, client: int) -> int:
        if not 0 <= client < self.client_count:
            raise IndexError(f"client {client} does not exist; clients are 0 to {self.client_count - 1}")
        return client

    def _generate(self, client: int) -> Rows:
        """All samples of a client, train samples first."""
        total = int(self._totals[self._checked(client)])
        rng = generator(self.seed, "synthetic", client)
        if self.iid:
            weights, bias = self._model(0.0, generator(self.seed, "synthetic", "model"))
            centre = np.zeros(self.features)
        else:
            weights, bias = self._model(rng.normal(0, self.alpha), rng)
            centre = rng.normal(rng.normal(0, self.beta), 1, self.features)
        spread = np.arange(1, self.features + 1) ** -0.6  # the square root of the variances j^-1.2
        x = centre + spread * rng.standard_normal((total, self.features))
        return x.astype(np.float32), (x @ weights + bias).argmax(axis=1)

    def _model(self, mean: float, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return rng.normal(mean, 1, (self.features, self.class_count)), rng.normal(mean, 1, self.class_count)
