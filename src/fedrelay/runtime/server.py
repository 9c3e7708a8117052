"""The server's part of a round: what came home is merged, or waits in its slot for a later round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedrelay.engines.base import RoundInputs
from fedrelay.experiment.prepare import PreparedExperiment
from fedrelay.local.arrival import Arrival, HopReport
from fedrelay.merge.base import MergeInput
from fedrelay.merge.mean import Mean
from fedrelay.robustness.guard import NO_HOPS_YET, TypicalHop
from fedrelay.routes.mixing import mixed
from fedrelay.routes.plan import RoundPlan
from fedrelay.runtime.store import State
from fedrelay.warmup.base import Phase

_MERGE = "merge/"
"""What the merge keeps is told apart from what terms keep by this prefix."""


def with_waiting(plan: RoundPlan, state: State) -> RoundPlan:
    """The plan with the routes whose model really waits in a slot: after faults it may not."""
    if all(route.continues == (route.slot in state.waiting) for route in plan.routes):
        return plan
    routes = (replace(route, continues=route.slot in state.waiting) for route in plan.routes)
    return replace(plan, routes=tuple(routes))


def round_inputs(setting: PreparedExperiment, plan: RoundPlan, state: State) -> RoundInputs:
    """What the server sends out: the global model, or to routes with a slot the model that waits there."""
    own = {
        number: state.waiting[route.slot].weights if route.slot in state.waiting else state.weights
        for number, route in enumerate(plan.routes)
        if route.slot is not None and (route.clients or plan.real_arrivals)
    }
    if plan.mixing is not None:
        own = mixed(own, plan.mixing, {number: plan.routes[number].clients[0] for number in own}, setting.accuracy_at)
    waiting = {
        number: state.waiting[route.slot]
        for number, route in enumerate(plan.routes)
        if route.slot is not None and route.slot in state.waiting
    }
    return RoundInputs(
        state.weights,
        own,
        state.server,
        {number: arrival.payload for number, arrival in waiting.items()},
        usual(setting, state),
        {number: arrival.legs for number, arrival in waiting.items()},
        setting.next_legs(plan.round) if plan.real_arrivals else None,
    )


def usual(setting: PreparedExperiment, state: State) -> TypicalHop:
    """What turns are like; before anybody has had one, an update is as long as the model itself."""
    if state.usual is not None or not setting.experiment.guard.asks_what_is_usual:
        return state.usual or NO_HOPS_YET
    return TypicalHop(float(torch.linalg.vector_norm(state.weights[: setting.layout.trainable])))


def observed(setting: PreparedExperiment, state: State, arrivals: Sequence[Arrival]) -> State:
    """The state with what turns were like at this attempt, whatever becomes of it."""
    if not setting.experiment.guard.asks_what_is_usual:
        return state
    return replace(state, usual=usual(setting, state).after(hop for arrival in arrivals for hop in arrival.hops))


def after_arrivals(setting: PreparedExperiment, plan: RoundPlan, state: State, arrivals: Sequence[Arrival]) -> State:
    """The state after the models of a round came home; those that nobody's work is in count as if they had not."""
    arrivals = setting.counted(arrivals)
    waiting = dict(state.waiting)
    for arrival in arrivals:
        if not arrival.usable:
            continue
        own = plan.routes[arrival.route].slot
        slot = arrival.route if own is None else own
        waiting[slot] = arrival.after(waiting[slot]) if slot in waiting else arrival
        if not setting.phase(plan.round)[0].route.merges:  # nobody will ask for single hops
            waiting[slot] = waiting[slot].summed()
    if plan.merges and waiting:
        return after_merge(setting, state, [waiting[slot] for slot in sorted(waiting)])
    return replace(state, waiting={slot: at_rest(arrival) for slot, arrival in waiting.items()})


def after_merge(setting: PreparedExperiment, state: State, arrivals: Sequence[Arrival]) -> State:
    """The state after a merge: a new global model, nobody waits any more."""
    (phase, _), clients = setting.phase(state.round + 1), setting.federation.clients
    home = merge_input(setting, phase, state, arrivals)
    weights, memory = phase.merge.apply(home)
    server: Mapping[str, Tensor] = {name: t for name, t in state.server.items() if not name.startswith(_MERGE)}
    for term in phase.terms:
        weights = term.temper(weights, state.weights, setting.layout)
        server = term.settle(server, arrivals, clients)
    kept = {f"{_MERGE}{name}": tensor for name, tensor in memory.items()}
    return replace(state, weights=weights, server={**server, **kept}, waiting={})


def preview(setting: PreparedExperiment, state: State) -> Tensor:
    """The model to judge and to show: the global one, or while models wait, their mean."""
    if not state.waiting:
        return state.weights
    phase, _ = setting.phase(state.round)
    rule = phase.merge if isinstance(phase.merge, Mean) else Mean()
    models = every_clients_model(setting, state) if phase.route.model_per_client else list(state.waiting.values())
    return rule.apply(merge_input(setting, phase, state, models)).weights


def every_clients_model(setting: PreparedExperiment, state: State) -> Sequence[Arrival]:
    """One arrival for each client with samples, counted once. A client not visited yet has the first model."""
    found = []
    for client, samples in enumerate(setting.federation.sizes().tolist()):
        if samples:
            weights = state.waiting[client].weights if client in state.waiting else state.weights
            found.append(Arrival(client, (client,), weights, (HopReport(samples, 0, 0.0),)))
    return setting.counted(found)


def merge_input(setting: PreparedExperiment, phase: Phase, state: State, arrivals: Sequence[Arrival]) -> MergeInput:
    """What a merge may look at."""
    memory = {name.removeprefix(_MERGE): t for name, t in state.server.items() if name.startswith(_MERGE)}
    return MergeInput(
        state.weights,
        arrivals,
        setting.layout,
        setting.federation.clients,
        setting.experiment.train.at(state.round + 1),
        setting.federation.histogram,
        memory,
        phase.terms,
    )


def at_rest(arrival: Arrival) -> Arrival:
    """The same in memory of its own: what an engine returns is valid for one round only."""
    payload = {name: tensor.clone() for name, tensor in arrival.payload.items()}
    return replace(arrival, weights=arrival.weights.clone(), payload=payload)


def mean_loss(arrivals: Sequence[Arrival]) -> float | None:
    """The mean training loss over all steps of a round, if any were taken and all clients tell."""
    steps = sum(arrival.steps for arrival in arrivals)
    mean = sum(arrival.loss * arrival.steps for arrival in arrivals) / steps if steps else math.nan
    return mean if not math.isnan(mean) else None
