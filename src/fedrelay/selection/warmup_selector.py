"""Which clients a warm-up chain goes through, and in which order.

Paper: M. Arafeh et al., WFSL, 2025: all clients, random ones (RN), or genetic selection (GA).

Rule: clients without samples are never selected. The order of a chain is always random. Genetic selection has a
memory: a client that was selected in one cycle is not selected again until fewer than m others are left. Then all are
in the pool again.

Deviations: the memory is in the authors' program, not in the paper (`memory: false`). Their program begins anew one
cycle earlier if exactly m clients are left, so that some may never be selected. The paper gives no weights for its two
objectives. Its text favours similar models, so the default is W1 = 0.8 for similarity and W2 = 0.2 for samples; the
authors' program has it the other way round (`similarity: code`). The cosines of whole models are nearly 1, so they can
be computed from the change in training instead (`vectors: update`). Clients train for their vectors with the run's
learning rate; the authors' program uses 0.1 (`profile_lr: 0.1`). The search is described in the modules `genetic`,
`subset_objectives` and `cluster_balance`.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from fedrelay.errors import DivergedError
from fedrelay.experiment.spec import Section, unknown
from fedrelay.selection.cluster_balance import Balance, cluster_clients
from fedrelay.selection.genetic import GeneticSettings, SelectionProblem, search

SelectorName = Literal["all", "random", "genetic"]

OPTIONS: dict[SelectorName, frozenset[str]] = {
    "all": frozenset(),
    "random": frozenset({"count"}),
    "genetic": frozenset(
        {
            "count",
            "population",
            "iterations",
            "crossover",
            "mutation",
            "clusters",
            "balance",
            "memory",
            "similarity",
            "vectors",
            "profile_lr",
        }
    ),
}
"""The options that each selector uses."""

SIMILARITY = {"text": 0.8, "code": 0.2}
"""W1 by name: as the paper's text suggests, and as in the authors' program."""


@dataclass(frozen=True)
class Selection:
    """The selected clients, in the order of the chain."""

    clients: tuple[int, ...]
    scores: tuple[float, ...] = ()
    """The best score of each generation; one entry if all subsets were tried."""

    seconds: float = field(default=0.0, compare=False)
    """How long the selection took."""


class WarmupSelector(Section):
    """Selects the clients of a chain."""

    by: SelectorName = Field("all", description="how clients are selected: all, random or genetic")
    count: int = Field(10, ge=1, description="number of clients to select (m); all clients if there are fewer")
    population: int = Field(200, ge=2, description="genetic: size of the population")
    iterations: int = Field(50, ge=1, description="genetic: number of generations after the first")
    crossover: float = Field(0.1, ge=0, le=1, description="genetic: probability of a crossover")
    mutation: float = Field(
        0.05, ge=0, le=1, description="genetic: probability that a client is replaced by a random one"
    )
    clusters: int = Field(
        10, ge=1, description="genetic: number of clusters of similar clients; the selection is balanced over them"
    )
    balance: Balance = Field(
        "strict",
        description="genetic: by how much the numbers of clients from two clusters may differ: strict (by 1, unless "
        "a cluster is exhausted, as the paper's footnote says) or equation (also by the difference of their sizes)",
    )
    memory: bool = Field(
        True,
        description="genetic: do not select a client again until fewer than `count` others are left, as in the "
        "authors' program",
    )
    similarity: float = Field(
        SIMILARITY["text"],
        ge=0,
        le=1,
        description="genetic: weight W1 of similar models; W2 = 1 − W1 is the weight of many samples. "
        "text means 0.8, code means 0.2 as in the authors' program",
    )
    vectors: Literal["raw", "update"] = Field(
        "raw",
        description="genetic: compare clients by their models (raw), or by the change in training (update)",
    )
    profile_lr: float | None = Field(
        None,
        gt=0,
        description="genetic: learning rate of the epoch that clients train to be compared; default: train.lr; the "
        "authors' program has 0.1",
    )

    @field_validator("similarity", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if not isinstance(value, str) or value in SIMILARITY:
            return SIMILARITY.get(value, value)
        try:
            return float(value)
        except ValueError:
            raise ValueError(f"must be a number or a name; {unknown('name', value, SIMILARITY)}") from None

    @model_validator(mode="after")
    def _everything_has_an_effect(self) -> Self:
        for name, each in type(self).model_fields.items():
            if name not in {"by", *OPTIONS[self.by]} and getattr(self, name) != each.default:
                owners = [repr(selector) for selector, options in OPTIONS.items() if name in options]
                raise ValueError(f"{name}: has no effect with by {self.by!r}; it is an option of {', '.join(owners)}")
        return self

    @property
    def needs_vectors(self) -> bool:
        """Whether every client must train a model before clients can be selected."""
        return self.by == "genetic"

    def remembered_cycles(self, cycle: int, clients: int) -> range:
        """The earlier cycles whose clients are not selected again in this one: those since the pool was last full.

        Args:
            cycle: The number of the cycle, from 1.
            clients: The number of clients that have samples.
        """
        if self.by != "genetic" or not self.memory:
            return range(0)
        cycles_per_pool = max(1, clients // self.count)
        return range(cycle - (cycle - 1) % cycles_per_pool, cycle)

    def select_clients(
        self,
        sizes: NDArray[np.int64],
        rng: np.random.Generator,
        vectors: NDArray[np.floating[Any]] | None = None,
        start: NDArray[np.floating[Any]] | None = None,
        remembered: Collection[int] = (),
    ) -> Selection:
        """Select clients and put them in random order.

        Args:
            sizes: The number of samples of each client.
            rng: Generator for all random decisions.
            vectors: Genetic selection only: the model `[clients, parameters]` that each client trained.
            start: With `vectors: update` only: the model that all clients started from.
            remembered: Genetic selection only: clients of `remembered_cycles`, which are not in the pool.
        """
        started = time.perf_counter()
        with_samples = np.flatnonzero(sizes)
        selected = with_samples
        scores: tuple[float, ...] = ()
        if self.by == "random":
            selected = rng.choice(with_samples, min(self.count, len(with_samples)), replace=False)
        elif self.by == "genetic" and len(with_samples):
            compared = self._compared_vectors(with_samples, vectors, start)
            pool = np.flatnonzero(~np.isin(with_samples, list(remembered)))
            best, scores = self._search(compared, sizes[with_samples], pool, rng)
            selected = with_samples[best]
        order = tuple(rng.permutation(selected).tolist())
        return Selection(order, scores, time.perf_counter() - started)

    def _compared_vectors(
        self,
        clients: NDArray[np.int64],
        vectors: NDArray[np.floating[Any]] | None,
        start: NDArray[np.floating[Any]] | None,
    ) -> NDArray[np.float64]:
        if vectors is None or (self.vectors == "update" and start is None):
            raise ValueError("genetic selection needs the clients' vectors, and with vectors='update' the start model")
        compared = np.asarray(vectors, np.float64)[clients]
        if self.vectors == "update":
            compared = compared - np.asarray(start, np.float64)
        diverged = np.flatnonzero(~np.isfinite(compared).all(axis=1))
        if len(diverged):
            raise DivergedError(f"selector: the model of client {clients[diverged[0]]} has non-finite values")
        return compared

    def _search(
        self, vectors: NDArray[np.float64], sizes: NDArray[np.int64], pool: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], tuple[float, ...]]:
        """The rows of the best subset of the pool, and the best score of each generation. All rows are clustered."""
        labels = cluster_clients(vectors, self.clusters, rng)
        weights = (self.similarity, 1 - self.similarity)
        problem = SelectionProblem.of(vectors[pool], sizes[pool], labels[pool], self.count, weights, self.balance)
        settings = GeneticSettings(self.population, self.iterations, self.crossover, self.mutation)
        scores = []
        for generation in search(problem, settings, rng):
            best = generation.best
            scores.append(generation.score)
        return pool[problem.clusters.clients[best]], tuple(scores)
