"""A run with a spy: one client that keeps every model it is handed, learns from it, and hands on honest work.

The run is bit for bit the one without the spy: the same rounds, at which somebody looks. What is measured after every
visit: how accurate the model was that the spy received, and how far what it can draw is from the samples of the client
before it and from those of all clients.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedrelay.data.federation import Federation, Samples
from fedrelay.engines.start import data_at_nodes
from fedrelay.errors import DataError, SpecError
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.prepared import PreparedExperiment
from fedrelay.experiment.spec import Experiment
from fedrelay.local.arrival import Arrival
from fedrelay.local.evaluation import accuracy
from fedrelay.models.layout import FlatModule
from fedrelay.rng import generator
from fedrelay.robustness.gan_attack import Features, GanAttack, ReceivedModel, feature_network, frechet_distance, taps
from fedrelay.routes.plan import RoundPlan
from fedrelay.runtime.loop import run_prepared
from fedrelay.runtime.observer import HopTap, Observer
from fedrelay.runtime.result import Result

MOST_COMPARED = 5000
"""Images that are drawn, and so many of all clients', for one distance."""

SHOWN = 64
"""Images that are drawn in the end."""


@dataclass(frozen=True)
class GanObservation:
    """One visit as the spy saw it; a distance is None where there were too few images to tell."""

    round: int
    predecessor: int | None
    """The client that had trained the model just before on this route; None: the spy was the first."""

    accuracy: float
    fid_previous: float | None
    fid_all: float | None

    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


@dataclass(frozen=True)
class GanAttackResult:
    """What a spy has gathered in a run."""

    spy: int
    glimpses: tuple[GanObservation, ...]
    drawings: Tensor | None
    """Some images as the spy draws them in the end; None if it was never visited."""

    result: Result
    """The run itself, as it is without a spy."""

    @property
    def behind_others(self) -> int:
        """How often the spy was handed what another client had just trained."""
        return sum(glimpse.predecessor is not None for glimpse in self.glimpses)

    def first_at(self, accuracy: float) -> GanObservation | None:
        """The first visit with a model at least as accurate."""
        return next((glimpse for glimpse in self.glimpses if glimpse.accuracy >= accuracy), None)

    def nearest_to(self, accuracy: float, within: float) -> GanObservation | None:
        """The visit with a model of about that accuracy, the first of several that are as near."""
        near = [glimpse for glimpse in self.glimpses if abs(glimpse.accuracy - accuracy) <= within]
        return min(near, key=lambda glimpse: abs(glimpse.accuracy - accuracy), default=None)


class GanObserver(HopTap):
    """A client that looks at every model it receives."""

    def __init__(
        self,
        prepared: PreparedExperiment,
        client: int,
        attack: GanAttack,
        features: Features | None,
        watch: Callable[[GanObservation], None],
    ) -> None:
        self.federation, self.client, self.attack, self.watch = prepared.federation, client, attack, watch
        self.bench = FlatModule(copy.deepcopy(prepared.module), prepared.layout, prepared.experiment.train.device)
        self.everybody = _some_of_all(prepared)
        seed, classes = prepared.experiment.seed, prepared.federation.classes
        self.features = features or feature_network(self.everybody, classes, seed=seed)
        self.glimpses: list[GanObservation] = []

    def taps(self, plan: RoundPlan) -> tuple[tuple[int, int], ...]:
        """All of its own."""
        return taps(self.client, [route.clients for route in plan.routes])

    def on_arrivals(self, plan: RoundPlan, arrivals: Sequence[Arrival]) -> None:
        """Learn from every model that came by, and measure."""
        for arrival in arrivals:
            for index, model in sorted(arrival.received_models.items()):
                self.attack.see(ReceivedModel(plan.round, self.client, model))
                self.glimpses.append(self._glimpse(plan.round, _predecessor(arrival, index), model))
                self.watch(self.glimpses[-1])

    def _glimpse(self, round: int, predecessor: int | None, model: Tensor) -> GanObservation:
        """Where the spy is after a visit."""
        drawn = self.attack.draw(MOST_COMPARED, key=round)
        previous = None if predecessor is None else self.federation.samples(predecessor).x
        return GanObservation(
            round,
            predecessor,
            accuracy(self.bench, model, self.federation.test),
            None if previous is None else self._distance(drawn, previous),
            self._distance(drawn, self.everybody.x),
        )

    def _distance(self, drawn: Tensor, images: Tensor) -> float | None:
        try:
            return frechet_distance(self.features, drawn, images)
        except DataError:
            return None


class _Impatient(Observer):
    """Nothing of a run with a spy is saved, so that an interrupted round need not be finished."""

    def on_stopping(self) -> None:
        """Stop at once."""
        raise KeyboardInterrupt


def run_gan_attack(
    experiment: Experiment,
    spy: int,
    *,
    epochs: int = 300,
    federation: Federation | None = None,
    module: nn.Module | None = None,
    features: Features | None = None,
    watch: Callable[[GanObservation], None] = lambda glimpse: None,
) -> GanAttackResult:
    """Run a method with one client that looks; `features` compare images, by default those of FID-cnn."""
    if epochs < 1:
        raise SpecError(f"epochs: must be at least 1, got {epochs}")
    if data_at_nodes(experiment):
        raise SpecError("spy: looks at models in simulation alone; the engine must be 'local' or 'ray', got 'flower'")
    run = prepare(experiment, federation=federation, module=module)
    prepared = run.prepared
    _check(prepared, spy)
    attack = GanAttack(prepared.module, prepared.federation.samples(spy), epochs=epochs, seed=experiment.seed)
    looking = GanObserver(prepared, spy, attack, features, watch)
    result = run_prepared(run, observer=_Impatient(), tap=looking)
    drawings = attack.draw(SHOWN) if looking.glimpses else None
    return GanAttackResult(spy, tuple(looking.glimpses), drawings, result)


def _check(prepared: PreparedExperiment, spy: int) -> None:
    federation = prepared.federation
    if prepared.method.pools_data:
        raise SpecError(f"spy: {prepared.experiment.method!r} has no clients that could look")
    if not 0 <= spy < federation.clients:
        raise SpecError(f"spy: must be a client, one of 0 … {federation.clients - 1}, got {spy}")
    if federation.size(spy) < 2:
        raise SpecError(f"spy: needs two samples of its own to learn from, client {spy} has {federation.size(spy)}")
    if federation.kind != "image":
        raise SpecError(f"spy: draws images, but the data {federation.name!r} are {federation.kind}")


def _predecessor(arrival: Arrival, index: int) -> int | None:
    """Whose work was the last in a model at a turn; what was refused is not in it."""
    before = list(zip(arrival.clients[:index], arrival.hops[:index], strict=True))
    return next((client for client, hop in reversed(before) if not hop.refused), None)


def _some_of_all(prepared: PreparedExperiment) -> Samples:
    """Samples of all clients, not more than are compared."""
    federation = prepared.federation
    parts = [federation.samples(client) for client in range(federation.clients) if federation.size(client)]
    x, y = (torch.cat([part[each] for part in parts]) for each in (0, 1))
    rows = generator(prepared.experiment.seed, "spied-on").permutation(len(y))[:MOST_COMPARED]
    return Samples(x[torch.from_numpy(rows)], y[torch.from_numpy(rows)])
