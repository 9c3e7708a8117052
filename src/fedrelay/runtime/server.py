"""The server's part of a round: it sends models out, and merges the arrivals or keeps them for a later round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

from torch import Tensor

from fedrelay.engines.base import RoundInputs
from fedrelay.engines.local.executor import one_thread
from fedrelay.errors import DivergedError
from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.local.evaluation import headline_score
from fedrelay.local.seed_torch import seed_torch
from fedrelay.local.terms.base import MergedRound, Term, TermResult
from fedrelay.local.terms.tensor_declarations import Payload, ServerState, value_count
from fedrelay.merge.base import MergeInput, checked_result
from fedrelay.merge.mean import Mean
from fedrelay.models.flat_layout import FlatModule
from fedrelay.rng import generator, torch_seed
from fedrelay.robustness.guard import all_finite, cap_shares
from fedrelay.routes.arrival import Arrival, HopReport
from fedrelay.routes.mixing import mix_models
from fedrelay.routes.plan import RoundPlan
from fedrelay.runtime.planner import Planner
from fedrelay.runtime.run_state import RunState
from fedrelay.user_code import errors_in_own_part
from fedrelay.warmup.base import Phase

_MERGE, _STAGE, _TERM = "merge/", "stage/", "term/"
"""Prefixes of what the merge, the server stage and terms keep at the server, apart from what terms send."""


class Server:
    """Turns states and arrivals into states. It holds no state of its own."""

    def __init__(self, prepared: PreparedExperiment, planner: Planner) -> None:
        self.prepared, self.planner = prepared, planner

    def round_inputs(self, plan: RoundPlan, state: RunState) -> RoundInputs:
        """What is sent out: the global model, or the model that waits in a route's slot."""
        waiting = {
            number: state.waiting[route.slot]
            for number, route in enumerate(plan.routes)
            if route.slot is not None and route.slot in state.waiting
        }
        starts = {
            number: waiting[number].weights if number in waiting else state.weights
            for number, route in enumerate(plan.routes)
            if route.slot is not None and (route.clients or plan.real_arrivals)
        }
        if plan.mixing is not None:
            owners = {number: plan.routes[number].clients[0] for number in starts}
            starts = mix_models(starts, plan.mixing, owners, self._accuracy_at)
        weights, starts = self._encoded(plan, state.weights, starts)
        return RoundInputs(
            weights,
            starts,
            state.server,
            {number: arrival.payload for number, arrival in waiting.items()},
            state.typical_hop,
            {number: arrival.visited_groups for number, arrival in waiting.items()},
            partial(self.planner.legs_for_free_models, plan.round) if plan.real_arrivals else None,
            state.merges,
        )

    def _encoded(self, plan: RoundPlan, weights: Tensor, starts: dict[int, Tensor]) -> tuple[Tensor, dict[int, Tensor]]:
        """The global model and the starts of routes, as the clients that they are sent to decode them."""
        codec, seed = self.prepared.codec, self.prepared.experiment.seed
        if codec is None or not codec.from_server or plan.handover in ("peers", "none"):
            return weights, starts

        def sent(model: Tensor, *route: int) -> Tensor:
            return codec.round_trip(model, model, generator(seed, "transfer from server", plan.round, *route))

        to_all = sent(weights)
        return to_all, {number: to_all if model is weights else sent(model, number) for number, model in starts.items()}

    def receive(self, plan: RoundPlan, state: RunState, arrivals: Sequence[Arrival]) -> RunState:
        """The state after a round: the arrivals are merged, or wait in their slots.

        An arrival without any client's work counts as if it had not come.
        """
        waiting, merges_later = dict(state.waiting), self.prepared.phase(plan.round).route.ever_merges
        for arrival in self._weighted(arrivals):
            if not arrival.usable:
                continue
            own = plan.routes[arrival.route].slot
            slot = arrival.route if own is None else own
            waiting[slot] = arrival.extending(waiting[slot]) if slot in waiting else arrival
            if not merges_later:  # then single hops are never asked for
                waiting[slot] = waiting[slot].with_summed_hops()
        with one_thread():
            seed_torch(torch_seed(self.prepared.experiment.seed, "merge", plan.round), "cpu")
            if plan.merges and waiting:
                state = self._merge(state, [waiting[slot] for slot in sorted(waiting)])
            else:
                state = replace(state, waiting={slot: _copied(arrival) for slot, arrival in waiting.items()})
        return replace(state, round=plan.round)

    def _merge(self, state: RunState, arrivals: Sequence[Arrival]) -> RunState:
        """The state with a new global model; no model waits any more."""
        phase, arrivals = self.prepared.phase(state.round + 1), self._capped(arrivals)
        inputs, place = self.merge_input(phase, state, arrivals), f"round {state.round + 1}: "
        with errors_in_own_part(phase.merge, "apply", place):
            weights, merge_state = checked_result(phase.merge.apply(inputs), inputs)
        self._check_finite(weights, f"{place}merge {type(phase.merge).__name__!r}")
        server = {name: tensor for name, tensor in state.server.items() if not name.startswith((_MERGE, _STAGE, _TERM))}
        for term in phase.terms:
            with errors_in_own_part(term, "adjust_merged_model", place):
                weights = term.adjust_merged_model(weights, state.weights, self.prepared.layout)
                if getattr(weights, "shape", None) != state.weights.shape:
                    raise TypeError(f"must return a model with {len(state.weights)} weights")
            self._check_finite(weights, f"{place}term {type(term).__name__!r}, adjust_merged_model,")
        clients = self.prepared.federation.client_count
        server, own = self._after_merge_of_terms(
            phase, state, MergedRound(weights, state.weights, arrivals, clients, server)
        )
        sent, kept = phase.server.after_merge(
            weights, state.weights, _below(_STAGE, state.server), self.prepared.layout
        )
        self._check_finite(sent, f"{place}{' and '.join(phase.server.settings_in_use)}")
        own |= {f"{_MERGE}{name}": tensor for name, tensor in merge_state.items()}
        own |= {f"{_STAGE}{name}": tensor for name, tensor in kept.items()}
        return replace(state, weights=sent, server={**server, **own}, waiting={}, merges=state.merges + 1)

    def _after_merge_of_terms(
        self, phase: Phase, state: RunState, merged: MergedRound
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The server state with what terms change in it, and what they keep at the server."""
        sent, own = dict(merged.server_state), dict[str, Tensor]()
        for number, term in enumerate(phase.terms):
            prefix, place = f"{_TERM}{number}/", f"round {state.round + 1}: "
            with errors_in_own_part(term, "after_merge", place):
                found = term.after_merge(replace(merged, state=_below(prefix, state.server)))
                if not isinstance(found, TermResult):
                    raise TypeError(f"must return a TermResult, got {type(found).__name__}")
                _check_server_state(found.server_state, term, state.weights)
            for tensor in found.server_state.values():
                self._check_finite(tensor, f"{place}term {type(term).__name__!r}, after_merge,")
            sent |= found.server_state
            own |= {f"{prefix}{name}": tensor for name, tensor in found.state.items()}
        return sent, own

    def _check_finite(self, tensor: Tensor, who: str) -> None:
        """Refuse what would spoil all rounds to come. The models that arrived have been checked before."""
        if not all_finite(tensor[: self.prepared.layout.float_size]):
            raise DivergedError(f"{who} returned non-finite values, though all models that arrived are finite")

    def current_model(self, state: RunState) -> Tensor:
        """The model to evaluate and to return: that of the server stage, or while models wait, their mean."""
        phase, kept = self.prepared.phase(state.round), _below(_STAGE, state.server)
        if not state.waiting or phase.server.has_average(kept):
            return phase.server.evaluated_model(state.weights, kept, self.prepared.layout)
        merge = phase.merge if isinstance(phase.merge, Mean) else Mean()
        models = self._models_of_clients(state) if phase.route.model_per_client else list(state.waiting.values())
        return merge.apply(self.merge_input(phase, state, self._capped(models))).weights

    def own_models(self, state: RunState) -> dict[int, Tensor]:
        """The own model of each client with samples; empty where all clients share one."""
        if not self.prepared.phase(state.round).route.model_per_client:
            return {}
        return {
            client: state.waiting[client].weights if client in state.waiting else state.weights
            for client in self.prepared.holders()
        }

    def _models_of_clients(self, state: RunState) -> Sequence[Arrival]:
        """One arrival for each client with samples. A client without a hop so far has the first model."""
        found = []
        for client, samples in enumerate(self.prepared.federation.sample_counts().tolist()):
            if samples:
                weights = state.waiting[client].weights if client in state.waiting else state.weights
                found.append(Arrival(client, (client,), weights, (HopReport(samples, 0, 0.0),)))
        return self._weighted(found)

    def merge_input(self, phase: Phase, state: RunState, arrivals: Sequence[Arrival]) -> MergeInput:
        """What a merge may look at."""
        return MergeInput(
            state.weights,
            arrivals,
            self.prepared.layout,
            self.prepared.federation.client_count,
            self.prepared.experiment.train.at(state.round + 1, self.prepared.experiment.rounds),
            self.prepared.federation.histogram,
            _below(_MERGE, state.server),
            phase.terms,
        )

    def _capped(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        """Arrivals of which none counts for more than the largest share, for the merge and for the state of terms."""
        largest_share = self.prepared.experiment.guard.largest_share
        return arrivals if largest_share is None else cap_shares(arrivals, largest_share)

    def _weighted(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        """Arrivals with the samples that their hops count for in a mean."""
        warmup = self.prepared.method.warmup
        if warmup is None:
            return arrivals
        return [warmup.arrival_with_sample_count_for_merge(each, self.prepared.federation) for each in arrivals]

    def _accuracy_at(self, weights: Tensor, client: int) -> float:
        """The accuracy of a model on the samples of a client."""
        with one_thread():
            samples = self.prepared.federation.train_samples(client)
            return headline_score(self._module, weights, self.prepared.task, samples)

    @cached_property
    def _module(self) -> FlatModule:
        prepared = self.prepared
        train = prepared.experiment.train
        return FlatModule(prepared.module, prepared.layout, train.device, train.precision)


def _below(prefix: str, server: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The part of the server's tensors with a prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in server.items() if name.startswith(prefix)}


def _copied(arrival: Arrival) -> Arrival:
    """The arrival in memory of its own: what an engine returns is valid for one round only."""
    payload = {name: tensor.clone() for name, tensor in arrival.payload.items()}
    return replace(arrival, weights=arrival.weights.clone(), payload=payload)


def _check_server_state(found: object, term: Term, weights: Tensor) -> None:
    """Refuse server state that the term has not declared."""
    if not isinstance(found, Mapping):
        raise TypeError(f"the server state must be a mapping, got {type(found).__name__}")
    tensors = [each for each in term.tensors if isinstance(each, ServerState | Payload)]
    declared = {each.name: value_count(each, len(weights)) for each in tensors}
    for name, tensor in found.items():
        if name not in declared:
            raise ValueError(f"returned {name!r}, which it does not declare; add ServerState({name!r}) to 'tensors'")
        if not isinstance(tensor, Tensor) or tensor.shape != (declared[name],):
            raise TypeError(f"{name!r} must be a tensor with {declared[name]} values")


def mean_loss(arrivals: Sequence[Arrival]) -> float | None:
    """The mean training loss over all steps of a round; None if there were no steps, or a client does not report it."""
    steps = sum(arrival.steps for arrival in arrivals)
    mean = sum(arrival.loss * arrival.steps for arrival in arrivals) / steps if steps else math.nan
    return mean if not math.isnan(mean) else None
