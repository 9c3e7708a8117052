"""The section `selector`: who is chosen for a chain, and in which order they are visited.

Paper: M. Arafeh et al., WFSL, 2025: all clients, random ones (RN), or the genetic choice (GA).

Rule: clients without samples are never chosen. The order of a chain is random, whoever chose its clients.

Deviations: the paper gives no weights for its two objectives. Its text favours similar models, so the default is W1 =
0.8 for them and W2 = 0.2 for many samples; the authors' program has it the other way round, `similarity: code`. Cosines
of whole models are nearly 1, so they can be taken of what training changed, `vectors: update`. More on the search in
the files genetic, fitness and clusters beside this one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from fedrelay.errors import DivergedError
from fedrelay.experiment.spec import Section, unknown
from fedrelay.selection.clusters import cluster_clients
from fedrelay.selection.genetic import GeneticSettings, SelectionProblem, search

SelectorName = Literal["all", "random", "genetic"]

OPTIONS: dict[SelectorName, frozenset[str]] = {
    "all": frozenset(),
    "random": frozenset({"count"}),
    "genetic": frozenset(
        {"count", "population", "iterations", "crossover", "mutation", "clusters", "similarity", "vectors"}
    ),
}
"""What each way of choosing looks at."""

SIMILARITY = {"text": 0.8, "code": 0.2}
"""W1 by name: as the paper's text suggests, and as its authors' program has it."""


@dataclass(frozen=True)
class Selection:
    """Who was chosen, in the order of the chain."""

    clients: tuple[int, ...]
    scores: tuple[float, ...] = ()
    """The best score of every generation; of one alone where all choices were looked at."""

    seconds: float = field(default=0.0, compare=False)
    """How long the choice took."""


class Selector(Section):
    """Which clients a chain goes through."""

    by: SelectorName = Field("all", description="who is chosen: all, random or genetic")
    count: int = Field(10, ge=1, description="how many clients are chosen; all where there are fewer (m)")
    population: int = Field(200, ge=2, description="genetic: choices that live at a time")
    iterations: int = Field(50, ge=1, description="genetic: generations after the first")
    crossover: float = Field(0.1, ge=0, le=1, description="genetic: probability that two parents are crossed")
    mutation: float = Field(0.05, ge=0, le=1, description="genetic: probability that a gene is replaced")
    clusters: int = Field(10, ge=1, description="genetic: clusters of like clients that are to be taken from alike")
    similarity: float = Field(
        SIMILARITY["text"],
        ge=0,
        le=1,
        description="genetic: weight of similar models, W1; the rest, W2, is that of many samples. "
        "text = 0.8, code = 0.2 as in the authors' program",
    )
    vectors: Literal["raw", "update"] = Field(
        "raw",
        description="genetic: clients are compared by their models (raw), or by their change in training (update)",
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
                owners = [repr(way) for way, options in OPTIONS.items() if name in options]
                raise ValueError(f"{name}: has no effect with by {self.by!r}; it is an option of {', '.join(owners)}")
        return self

    @property
    def needs_vectors(self) -> bool:
        """Whether clients must be described by models before they are chosen."""
        return self.by == "genetic"

    def choose(
        self,
        sizes: NDArray[np.int64],
        rng: np.random.Generator,
        vectors: NDArray[np.floating[Any]] | None = None,
        start: NDArray[np.floating[Any]] | None = None,
    ) -> Selection:
        """A chain through some of the clients, each with so many samples.

        Genetic selection needs `vectors`, the model [clients, parameters] that each made of the model `start`.
        """
        begun = time.perf_counter()
        holders = np.flatnonzero(sizes)
        chosen = holders
        scores: tuple[float, ...] = ()
        if self.by == "random":
            chosen = rng.choice(holders, min(self.count, len(holders)), replace=False)
        elif self.by == "genetic" and len(holders):
            described = self._describe(holders, vectors, start)
            best, scores = self._search(described, sizes[holders], rng)
            chosen = holders[best]
        order = tuple(rng.permutation(chosen).tolist())
        return Selection(order, scores, time.perf_counter() - begun)

    def _describe(
        self,
        holders: NDArray[np.int64],
        vectors: NDArray[np.floating[Any]] | None,
        start: NDArray[np.floating[Any]] | None,
    ) -> NDArray[np.float64]:
        if vectors is None or (self.vectors == "update" and start is None):
            raise ValueError("genetic selection needs the clients' vectors, and for their update the first model")
        described = np.asarray(vectors, np.float64)[holders]
        if self.vectors == "update":
            described = described - np.asarray(start, np.float64)
        broken = np.flatnonzero(~np.isfinite(described).all(axis=1))
        if len(broken):
            raise DivergedError(f"selector: the model of client {holders[broken[0]]} is not finite")
        return described

    def _search(
        self, vectors: NDArray[np.float64], sizes: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], tuple[float, ...]]:
        """The best choice of rows, and the best score of every generation."""
        labels = cluster_clients(vectors, self.clusters, rng)
        task = SelectionProblem.of(vectors, sizes, labels, self.count, (self.similarity, 1 - self.similarity))
        breeding = GeneticSettings(self.population, self.iterations, self.crossover, self.mutation)
        scores = []
        for generation in search(task, breeding, rng):
            best = generation.best
            scores.append(generation.score)
        return task.clusters.clients[best], tuple(scores)
