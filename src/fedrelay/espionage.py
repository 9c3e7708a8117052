"""A run with a spy: one client that keeps every model it is handed, learns from it, and hands on honest work.

The run is bit for bit the one without the spy. What is measured after every visit: how accurate the model was that the
spy received, and how far what it can draw is from the samples of the client before it and from those of all clients.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fedrelay.attacks.gan import Features, GanAttack, Sighting, feature_network, frechet_distance, taps
from fedrelay.data.federation import Federation, Samples
from fedrelay.engines.base import Engine
from fedrelay.engines.start import start_engine
from fedrelay.errors import DataError, SpecError
from fedrelay.metrics.classification import scores_of_counts
from fedrelay.rng import generator
from fedrelay.routes.plan import RoundPlan
from fedrelay.server import departure, observed, received
from fedrelay.setting import Setting, prepare
from fedrelay.spec import Experiment
from fedrelay.store import State

MOST_COMPARED = 5000
"""Images that are drawn, and so many of all clients', for one distance."""


@dataclass(frozen=True)
class Glimpse:
    """One visit as the spy saw it; a distance is None where there were too few images to tell."""

    round: int
    predecessor: int | None
    """The client that had trained the model just before; None: it came from the server."""

    accuracy: float
    fid_previous: float | None
    fid_all: float | None

    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


@dataclass(frozen=True)
class Haul:
    """What a spy has gathered in a run."""

    experiment: Experiment
    spy: int
    glimpses: tuple[Glimpse, ...]
    drawings: Tensor
    """Some images as the spy draws them in the end."""

    weights: Tensor
    """The global model after the last round."""

    def first_at(self, accuracy: float) -> Glimpse | None:
        """The first visit with a model at least as accurate."""
        return next((glimpse for glimpse in self.glimpses if glimpse.accuracy >= accuracy), None)


def run_with_spy(
    experiment: Experiment,
    spy: int,
    *,
    epochs: int = 300,
    federation: Federation | None = None,
    module: nn.Module | None = None,
    features: Features | None = None,
    watch: Callable[[Glimpse], None] = lambda glimpse: None,
) -> Haul:
    """Run a method with one client that looks; `features` compare images, by default those of FID-cnn."""
    setting = prepare(experiment, federation=federation, module=module)
    _check(setting, spy)
    everybody = _some_of_all(setting)
    compare = features or feature_network(everybody, setting.federation.classes, seed=experiment.seed)
    attack = GanAttack(setting.module, setting.federation.samples(spy), epochs=epochs, seed=experiment.seed)
    state, glimpses = State(0, setting.first_weights()), []
    with closing(start_engine(setting.job(), experiment)) as engine:
        for round in range(1, experiment.rounds + 1):
            plan = setting.plan(round)
            plan = replace(plan, tapped=taps(spy, [route.clients for route in plan.routes]))
            arrivals = engine.travel(plan, departure(setting, plan, state))
            seen = {(each.route, index): model.clone() for each in arrivals for index, model in each.sightings.items()}
            state = observed(setting, state, arrivals)
            state = replace(received(setting, plan, state, arrivals), round=round)
            for place, model in seen.items():
                attack.see(Sighting(round, spy, model))
                glimpses.append(_glimpse(setting, engine, attack, compare, everybody, plan, place, model))
                watch(glimpses[-1])
    return Haul(setting.experiment, spy, tuple(glimpses), attack.draw(64), state.weights)


def _check(setting: Setting, spy: int) -> None:
    experiment, clients = setting.experiment, setting.federation.clients
    if not 0 <= spy < clients or not setting.federation.size(spy):
        raise SpecError(f"spy: must be a client with samples, one of 0 … {clients - 1}, got {spy}")
    if setting.federation.kind != "image":
        raise SpecError(f"spy: draws images, but the data {setting.federation.name!r} are {setting.federation.kind}")
    if len(setting.phases) > 1 or setting.recipe.pools_data or experiment.faults:
        raise SpecError("spy: needs a method of clients without a warm-up, and nothing that goes wrong")


def _some_of_all(setting: Setting) -> Samples:
    """Samples of all clients, not more than are compared."""
    federation = setting.federation
    parts = [federation.samples(client) for client in range(federation.clients) if federation.size(client)]
    x, y = (torch.cat([part[each] for part in parts]) for each in (0, 1))
    rows = generator(setting.experiment.seed, "spied-on").permutation(len(y))[:MOST_COMPARED]
    return Samples(x[torch.from_numpy(rows)], y[torch.from_numpy(rows)])


def _glimpse(
    setting: Setting,
    engine: Engine,
    attack: GanAttack,
    compare: Features,
    everybody: Samples,
    plan: RoundPlan,
    place: tuple[int, int],
    model: Tensor,
) -> Glimpse:
    """Measure where the spy is after a visit."""
    number, index = place
    predecessor = plan.routes[number].clients[index - 1] if index else None
    verdict = engine.evaluate(model)
    drawn = attack.draw(MOST_COMPARED, key=plan.round)
    previous = None if predecessor is None else setting.federation.samples(predecessor).x
    return Glimpse(
        plan.round,
        predecessor,
        scores_of_counts(verdict.correct, verdict.predicted, verdict.actual).accuracy,
        _distance(compare, drawn, previous),
        _distance(compare, drawn, everybody.x),
    )


def _distance(compare: Features, drawn: Tensor, images: Tensor | None) -> float | None:
    if images is None:
        return None
    try:
        return frechet_distance(compare, drawn, images)
    except DataError:
        return None
