"""The planner: the plan of any round of a prepared experiment."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cache, cached_property, lru_cache

import numpy as np

from fedrelay.cost.cost_model import CostModel
from fedrelay.errors import SpecError
from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.grouping.profiles import ProfileInputs
from fedrelay.privacy.hop_limit import HopLimit
from fedrelay.rng import generator, torch_seed
from fedrelay.robustness.fault_model import FaultModel
from fedrelay.routes.async_progress import AsyncProgress, GroupLeg
from fedrelay.routes.base import Groups, PlanningContext
from fedrelay.routes.plan import RoundPlan
from fedrelay.routes.plan_checks import checked_plan
from fedrelay.selection.warmup_selector import Selection
from fedrelay.user_code import errors_in_own_part, is_built_in
from fedrelay.warmup.base import Phase


class Planner:
    """Plans rounds in any order; the same round always has the same plan.

    Args:
        prepared: The experiment.
        costs: Gives durations of routes, which asynchronous routes and deadlines depend on.
    """

    def __init__(self, prepared: PreparedExperiment, costs: CostModel) -> None:
        self.prepared, self.costs = prepared, costs
        wanted = prepared.experiment
        self.faults = FaultModel(wanted.faults, wanted.recovery, wanted.seed, prepared.holders(), costs.time_model)
        self._context = PlanningContext(
            prepared.federation.client_count,
            wanted.fraction,
            wanted.seed,
            prepared.groups,
            has_samples=lambda client: prepared.federation.sample_count(client) > 0,
            sample_count=prepared.federation.sample_count,
            class_counts=cache(prepared.federation.histogram),
            client_names=lambda: prepared.client_names,
            regroup=lru_cache(maxsize=4)(self._regroup),
            route_seconds=costs.route_seconds,
            sampling=prepared.method.sampling,
            real_time=wanted.data_at_nodes,
        )
        self._select = cache(self._selection)  # a selection may depend on those before it

    def plan(self, round: int, waiting: Collection[int] | None = None) -> RoundPlan:
        """The plan of a round, without clients that have left, have no samples or no privacy budget.

        Args:
            round: Its number, from 1.
            waiting: Slots in which a model waits; None: those in which one waits if nothing goes wrong before.
        """
        plan = self._routed(round)
        if self.hop_limit is not None:
            plan = self.hop_limit.limit(plan)
        if waiting is None or all(route.continues == (route.slot in waiting) for route in plan.routes):
            return plan
        return replace(plan, routes=tuple(replace(each, continues=each.slot in waiting) for each in plan.routes))

    def legs_for_free_models(self, round: int, progress: AsyncProgress) -> tuple[GroupLeg, ...]:
        """Which free model goes to which idle group now, without clients that have left or have no samples."""
        phase = self.prepared.phase(round)
        context = self._phase_context(phase)
        legs = phase.route.legs_for_free_models(context, progress)
        return tuple(
            replace(leg, clients=tuple(client for client in leg.clients if not self._is_left_out(client, round)))
            for leg in legs
        )

    def warnings(self) -> Iterator[str]:
        """What routes say about settings that do not go well with this federation."""
        for phase in self.prepared.phases:
            with errors_in_own_part(phase.route, "planning_warning"):
                if warning := phase.route.planning_warning(self._phase_context(phase)):
                    yield warning

    def selection_seconds(self, round: int) -> float:
        """How long the search for the clients of a round took; 0 where there was none."""
        warmup = self.prepared.method.warmup
        if warmup is None or warmup.selector is None or not warmup.selector.needs_vectors:
            return 0.0
        return self._select(round).seconds if round <= sum(phase.rounds for phase in warmup.phases()) else 0.0

    def _routed(self, round: int) -> RoundPlan:
        """What the route asks for, with clients that have samples and have not left."""
        phase = self.prepared.phase(round)
        with errors_in_own_part(phase.route, "plan", f"round {round}: "):
            number = round - phase.first + 1
            plan = phase.route.plan(self._phase_context(phase), number)
            if not is_built_in(type(phase.route)):
                plan = checked_plan(plan, number)
            visited = set().union(*(route.clients for route in plan.routes))
            left_out = {client for client in visited if self._is_left_out(client, round)}
        routes = plan.routes
        if left_out:
            held = (
                route.only([i for i, client in enumerate(route.clients) if client not in left_out]) for route in routes
            )
            routes = tuple(route for route in held if route.clients or plan.real_arrivals)
        handover = plan.handover
        if self._context.real_time and handover != "sealed":
            handover = "server"
        plan = replace(plan, round=round, routes=routes, handover=handover)
        self._check_codec(plan)
        return plan

    def _check_codec(self, plan: RoundPlan) -> None:
        """Refuse to send changes to clients that lack the model which was changed."""
        codec = self.prepared.codec
        if codec is None or codec.from_server:
            return
        if plan.handover == "peers" or (plan.handover in ("direct", "sealed") and plan.longest > 1):
            has_choice = hasattr(self.prepared.phase(plan.round).route, "handover")
            advice = f"{'route.handover=server, or ' if has_choice else ''}transfer.codec to int8, float16 or bfloat16"
            raise SpecError(
                f"transfer.codec: {self.prepared.experiment.transfer.codec!r} sends the weights that changed, and the "
                f"next client lacks the model before; set {advice}"
            )

    def _is_left_out(self, client: int, round: int) -> bool:
        """Whether a client has no samples, does not exist, or has left."""
        return not self._context.has_samples(client) or self.prepared.has_left(client, round)

    def _phase_context(self, phase: Phase) -> PlanningContext:
        """What the route of a phase may look at; a later phase draws anew instead of repeating the first."""
        before = phase.first - 1
        return replace(
            self._context,
            rounds=phase.rounds,
            seed=torch_seed(self._context.seed, "phase", before) if before else self._context.seed,
            selected_clients=lambda round: self._select(before + round).clients,
        )

    @cached_property
    def hop_limit(self) -> HopLimit | None:
        """How many hops clients may have, where they have a privacy budget."""
        term = self.prepared.method.privacy
        if term is None or term.max_hops is None:
            return None
        return HopLimit(term.max_hops, self._routed, lambda plan: self.faults.apply(plan).plan)

    def _regroup(self, count: int, key: int) -> Groups:
        grouping, wanted = self.prepared.method.grouping, self.prepared
        assert grouping is not None
        inputs = ProfileInputs(wanted.federation, wanted.experiment.seed)
        return grouping.form_groups(inputs, wanted.profiling, count=count, key=key)

    def _selection(self, round: int) -> Selection:
        """The clients that are chosen for a round of a warm-up; only clients with samples have profiles."""
        prepared, warmup = self.prepared, self.prepared.method.warmup
        if warmup is None or warmup.selector is None:
            return Selection(())
        sizes = prepared.federation.sample_counts()
        holders = np.flatnonzero(sizes)
        rng = generator(prepared.experiment.seed, "selection", round)
        start = prepared.layout.flatten(prepared.module)[: prepared.layout.trained_size].double().numpy()
        vectors = prepared.selection.vectors if prepared.selection is not None else None
        earlier = warmup.selector.remembered_cycles(round, len(holders))
        remembered = np.flatnonzero(
            np.isin(holders, [client for each in earlier for client in self._select(each).clients])
        )
        found = warmup.selector.select_clients(sizes[holders], rng, vectors, start, remembered.tolist())
        return replace(found, clients=tuple(holders[list(found.clients)].tolist()))
