"""A run with a GAN attack: one client learns from every model it receives to draw other clients' images.

The attacker trains honestly, so the run has the same bits as one without it. After each of its hops it is measured how
accurate the received model is, and how far the drawn images are from those of the client before it and of all clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from fedrelay.data.federation import Federation
from fedrelay.data.lazy_dataset_samples import join
from fedrelay.data.samples import Samples
from fedrelay.errors import DataError, SpecError
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.experiment.spec import Experiment
from fedrelay.local.evaluation import headline_score
from fedrelay.models.flat_layout import FlatModule
from fedrelay.rng import generator
from fedrelay.robustness.gan_attacker import (
    Features,
    GanAttacker,
    ReceivedModel,
    feature_network,
    frechet_distance,
    hops_at,
)
from fedrelay.routes.arrival import Arrival
from fedrelay.routes.plan import RoundPlan
from fedrelay.runtime.callback import Callback
from fedrelay.runtime.hop_tap import HopTap
from fedrelay.runtime.result import Result
from fedrelay.runtime.round_loop import run_prepared

MOST_COMPARED = 5000
"""The most images, drawn and real, that one distance compares."""

SHOWN = 64
"""How many images are drawn at the end."""


@dataclass(frozen=True)
class GanObservation:
    """One hop of the attacker; a distance is None where there are too few images."""

    round: int
    predecessor: int | None
    """The client that trained the model just before on this route; None: the attacker was the first."""

    accuracy: float
    fid_previous: float | None
    fid_all: float | None


@dataclass(frozen=True)
class GanAttackResult:
    """What an attacker has learned in a run."""

    attacker: int
    observations: tuple[GanObservation, ...]
    images: Tensor | None
    """Images that the attacker draws at the end; None if it had no hop."""

    result: Result
    """The run itself, which is the same without the attack."""

    @property
    def behind_others(self) -> int:
        """How often the attacker received a model that another client had just trained."""
        return sum(observation.predecessor is not None for observation in self.observations)

    def first_at(self, accuracy: float) -> GanObservation | None:
        """The first hop with a model of at least this accuracy."""
        return next((observation for observation in self.observations if observation.accuracy >= accuracy), None)

    def nearest_to(self, accuracy: float, within: float) -> GanObservation | None:
        """The hop whose model is nearest to an accuracy, the first of several."""
        near = [observation for observation in self.observations if abs(observation.accuracy - accuracy) <= within]
        return min(near, key=lambda observation: abs(observation.accuracy - accuracy), default=None)


class GanTap(HopTap):
    """The tap of the attacker: it sees every model that this client receives."""

    def __init__(
        self,
        prepared: PreparedExperiment,
        client: int,
        attack: GanAttacker,
        features: Features | None,
        watch: Callable[[GanObservation], None],
    ) -> None:
        self.federation, self.client, self.attack, self.watch = prepared.federation, client, attack, watch
        self.task = prepared.task
        train = prepared.experiment.train
        self.module = FlatModule(prepared.module, prepared.layout, train.device, train.precision)
        self.all_samples = _sample_all(prepared)
        seed, classes = prepared.experiment.seed, prepared.federation.class_count
        self.features = features or feature_network(self.all_samples, classes, seed=seed)
        self.observations: list[GanObservation] = []

    def hops_to_tap(self, plan: RoundPlan) -> tuple[tuple[int, int], ...]:
        return hops_at(self.client, [route.clients for route in plan.routes])

    def on_received_models(self, plan: RoundPlan, arrivals: Sequence[Arrival]) -> None:
        """Learn from every received model, and measure what was learned."""
        for arrival in arrivals:
            for index, model in sorted(arrival.received_models.items()):
                self.attack.train_on(ReceivedModel(plan.round, self.client, model))
                self.observations.append(self._observe(plan.round, _predecessor(arrival, index), model))
                self.watch(self.observations[-1])

    def _observe(self, round: int, predecessor: int | None, model: Tensor) -> GanObservation:
        drawn = self.attack.generate(MOST_COMPARED, key=round)
        previous = None if predecessor is None else self.federation.train_samples(predecessor).load().single_input
        to_previous = None if previous is None else self._distance(drawn, previous)
        to_all = self._distance(drawn, self.all_samples.single_input)
        found = headline_score(self.module, model, self.task, self.federation.test)
        return GanObservation(round, predecessor, found, to_previous, to_all)

    def _distance(self, drawn: Tensor, images: Tensor) -> float | None:
        try:
            return frechet_distance(self.features, drawn, images)
        except DataError:
            return None


class _StopAtOnce(Callback):
    """Stops at once at Ctrl-C: nothing of the run is saved, so the round need not be finished."""

    def on_interrupt(self) -> None:
        raise KeyboardInterrupt


def run_gan_attack(
    experiment: Experiment,
    attacker: int,
    *,
    epochs: int = 300,
    federation: Federation | None = None,
    module: nn.Module | None = None,
    features: Features | None = None,
    watch: Callable[[GanObservation], None] = lambda observation: None,
) -> GanAttackResult:
    """Run a method with one attacker.

    Args:
        experiment: The run.
        attacker: The attacker, a client.
        epochs: Epochs of the generator after each hop.
        federation: Your own data.
        module: Your own model.
        features: What images are compared by; by default those of FID-cnn.
        watch: Called after each hop of the attacker.
    """
    if epochs < 1:
        raise SpecError(f"epochs: must be at least 1, got {epochs}")
    if experiment.data_at_nodes:
        raise SpecError("attacker: attacks are simulated; the engine must be 'local' or 'ray', got 'flower'")
    run = prepare(experiment, federation=federation, module=module)
    prepared = run.prepared
    _check(prepared, attacker)
    attack = GanAttacker(
        prepared.module, prepared.federation.train_samples(attacker).load(), epochs=epochs, seed=experiment.seed
    )
    tap = GanTap(prepared, attacker, attack, features, watch)
    result = run_prepared(run, callbacks=_StopAtOnce(), tap=tap)
    images = attack.generate(SHOWN) if tap.observations else None
    return GanAttackResult(attacker, tuple(tap.observations), images, result)


def _check(prepared: PreparedExperiment, attacker: int) -> None:
    federation = prepared.federation
    if prepared.method.pools_data:
        raise SpecError(f"attacker: {prepared.experiment.method!r} has no clients that could attack")
    if not 0 <= attacker < federation.client_count:
        raise SpecError(f"attacker: must be a client, one of 0 … {federation.client_count - 1}, got {attacker}")
    if federation.sample_count(attacker) < 2:
        raise SpecError(
            f"attacker: needs at least two samples, client {attacker} has {federation.sample_count(attacker)}"
        )
    if federation.kind != "image":
        raise SpecError(f"attacker: draws images, but the data {federation.name!r} are {federation.kind}")
    if prepared.task.name != "classification":
        raise SpecError(f"attacker: the attack fits the task classification, not {prepared.task.name!r}")


def _predecessor(arrival: Arrival, index: int) -> int | None:
    """The client whose update is the last one in a received model; refused updates are not in it."""
    before = list(zip(arrival.clients[:index], arrival.hops[:index], strict=True))
    return next((client for client, hop in reversed(before) if not hop.refused), None)


def _sample_all(prepared: PreparedExperiment) -> Samples:
    """Samples of all clients, at most as many as are compared."""
    federation = prepared.federation
    parts = [
        federation.train_samples(client) for client in range(federation.client_count) if federation.sample_count(client)
    ]
    together = join(parts)
    rows = generator(prepared.experiment.seed, "spied-on").permutation(together.size)[:MOST_COMPARED]
    return together.select(rows).load()
