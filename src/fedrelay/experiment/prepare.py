"""An experiment made concrete: data loaded, model built, groups formed, ready to plan any round.

Nothing is trained, unless the groups depend on what clients compute about themselves: then every client does that once.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedrelay.cost.clock import SERVERS_OWN, DeviceOf, TimeModel, VirtualTime, training_flops
from fedrelay.cost.ledger import (
    KINDS,
    ExtraPayloads,
    Kind,
    SetupStep,
    TransferTotals,
    histograms,
    ledger_line,
    transfer_counts,
    transfer_totals,
)
from fedrelay.cost.term_transfers import ROUND_MODEL, round_models, term_transfers
from fedrelay.data.federation import Federation
from fedrelay.data.pooled import PooledFederation
from fedrelay.data.public import PublicFederation
from fedrelay.engines.local.executor import one_thread
from fedrelay.engines.start import all_through_server, check_engine, node_names, start_engine
from fedrelay.errors import SpecError
from fedrelay.experiment.build import (
    below_public,
    build_module,
    check_classes,
    check_faults,
    module_builder,
    open_data,
    warn_about_unreached_rounds,
    with_absolute_paths,
    with_default_model,
)
from fedrelay.experiment.comparison_runs import with_public_samples, with_watched_classes
from fedrelay.experiment.method import Method, build_method
from fedrelay.experiment.spec import Experiment
from fedrelay.grouping.base import Grouping
from fedrelay.grouping.profiles import PROFILES as PROFILES_BY_NAME
from fedrelay.grouping.profiles import ProfileInputs, ProfileOptions, ProfilingResult
from fedrelay.local.arrival import Arrival
from fedrelay.local.client_profile import ClientProfiler, ProfileVector
from fedrelay.local.compatibility import check_device, check_fit, example_batch
from fedrelay.local.evaluation import accuracy
from fedrelay.local.loss import cross_entropy
from fedrelay.local.module_builder import ModuleBuilder
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.batched import BatchedModel
from fedrelay.models.layout import TORCH_GLOBALS, FlatLayout, FlatModule
from fedrelay.privacy.checks import check_budget
from fedrelay.privacy.visit_budget import VisitBudget
from fedrelay.rng import torch_seed
from fedrelay.robustness.faults import FaultModel
from fedrelay.robustness.guard import guard_passes
from fedrelay.robustness.label_flip import FlippedFederation, flip_labels
from fedrelay.routes.async_state import AsyncState, Leg, NextLegs
from fedrelay.routes.base import Groups, PlanningContext
from fedrelay.routes.overlay import NO_OVERHEAD, Overhead
from fedrelay.routes.plan import Handover, RoundPlan, Route
from fedrelay.runtime.store import PROBE, PROFILES, SELECTION
from fedrelay.selection.base import Selection, Selector
from fedrelay.warmup.base import Phase

log = logging.getLogger(__name__)

Watch = Callable[[int, int], None]
"""Told how many clients have described themselves, and how many there are."""


@dataclass(frozen=True)
class PreparedExperiment:
    """Everything that stays the same during a run."""

    experiment: Experiment
    recipe: Method
    federation: Federation
    scene: PlanningContext
    module: nn.Module
    layout: FlatLayout
    survey: ProfilingResult | None = None
    """What clients said of themselves, if the groups depend on it."""

    selection: ProfilingResult | None = None
    """What they said of themselves, if those who take part in a warm-up are chosen by it."""

    survey_seconds: float = 0.0
    choice: Callable[[int], Selection] | None = None
    """Round → who was chosen for it, where that is a search whose time is worth knowing."""

    origin: ModuleBuilder | None = None
    """How others can build the module; None where it is the caller's own."""

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """All rounds, phase by phase."""
        return self.recipe.phases(self.experiment.rounds)

    def phase(self, round: int) -> tuple[Phase, int]:
        """The phase of a round, and the rounds before it."""
        before = 0
        for phase in self.phases:
            if round <= before + phase.rounds:
                return phase, before
            before += phase.rounds
        raise AssertionError(round)

    def plan(self, round: int) -> RoundPlan:
        """The plan of a round; clients without samples are passed over."""
        phase, before = self.phase(round)
        plan = self._routed(phase, before, round)
        return plan if self._allowance is None else self._allowance.kept(plan)

    def _routed(self, phase: Phase, before: int, round: int) -> RoundPlan:
        """What the route wants, for clients that hold samples."""
        plan = replace(phase.route.plan(self._scene(phase, before), round - before), round=round)
        if all_through_server(self.experiment):
            plan = replace(plan, handover="server")
        if all(map(self.federation.size, set().union(*(route.clients for route in plan.routes)))):
            return plan
        routes = (
            route.only([index for index, client in enumerate(route.clients) if self.federation.size(client)])
            for route in plan.routes
        )
        return replace(plan, routes=tuple(route for route in routes if route.clients or plan.real_arrivals))

    def next_legs(self, round: int) -> NextLegs:
        """Decides which model goes to which group in a round, without clients that hold no samples."""
        phase, before = self.phase(round)
        context = self._scene(phase, before)

        def decide(state: AsyncState) -> tuple[Leg, ...]:
            legs = phase.route.next_legs(context, state)
            return tuple(replace(leg, clients=tuple(filter(context.holds, leg.clients))) for leg in legs)

        return decide

    @cached_property
    def faults(self) -> FaultModel:
        wanted, holders = self.experiment, np.flatnonzero(self.federation.sizes()).tolist()
        return FaultModel(wanted.faults, wanted.recovery, wanted.seed, holders, self.stopwatch)

    @cached_property
    def _allowance(self) -> VisitBudget | None:
        """How often clients may be visited, where they have a privacy budget."""
        if (term := self.recipe.privacy) is None or (most := term.most_visits) is None:
            return None
        return VisitBudget(
            most, lambda round: self._routed(*self.phase(round), round), lambda plan: self.faults.apply(plan).plan
        )

    def out_of_budget(self, round: int) -> tuple[int, ...]:
        """The clients that have no visit left from this round on."""
        return () if self._allowance is None else self._allowance.spent(round)

    def privacy(self, visits: Mapping[int, int]) -> dict[str, Any]:
        """What clients have spent after so many visits each; empty where nothing guards them."""
        term = self.recipe.privacy
        return {} if term is None else term.accountant.spent(visits, np.flatnonzero(self.federation.sizes()).tolist())

    def _scene(self, phase: Phase, before: int) -> PlanningContext:
        """What the route of a phase looks at; a later phase draws anew instead of repeating the first."""
        chosen = self.scene.chosen
        return replace(
            self.scene,
            rounds=phase.rounds,
            seed=torch_seed(self.scene.seed, "phase", before) if before else self.scene.seed,
            chosen=lambda round: chosen(before + round),
            real=all_through_server(self.experiment),
        )

    @property
    def payloads(self) -> Mapping[str, int]:
        """What travels on every trip: name → bytes."""
        return {"model": self.layout.bytes}

    def extras(self, plan: RoundPlan) -> ExtraPayloads:
        """What else travels in a round, by kind of transfer: what terms send, down, up and from client to client.

        The model of the round is part of it where at least half of the transfers of a kind carry it.
        """
        found, trips = self._extras_of_terms(plan), transfer_counts(plan)
        for kind, count in round_models(self.phase(plan.round)[0].terms, plan).items():
            if 2 * count >= trips[kind]:
                found[kind][ROUND_MODEL] = self.layout.bytes
        return found

    def _extras_of_terms(self, plan: RoundPlan) -> dict[Kind, dict[str, int]]:
        """What terms send with every model."""
        phase, before = self.phase(plan.round)
        first = plan.round == before + 1
        found: dict[Kind, dict[str, int]] = {"s2c": {}, "c2s": {}, "c2c": {}}
        for term in phase.terms:
            for kind, names in term_transfers(term, first=first).items():
                found[kind] |= dict.fromkeys(names, self.layout.bytes)
        return found

    def tally(self, plan: RoundPlan, overhead: Overhead = NO_OVERHEAD) -> TransferTotals:
        """The transfers of a round; what is sent in vain carries what is usual for its kind."""
        found = transfer_totals(plan, self.payloads, self._extras_of_terms(plan), overhead.wasted)
        extras, sent = self.extras(plan), round_models(self.phase(plan.round)[0].terms, plan)
        for kind in KINDS:
            wasted = sum(times for each, times in overhead.wasted if each == kind and ROUND_MODEL in extras[kind])
            if count := sent[kind] + wasted:
                found += TransferTotals.of(kind, ROUND_MODEL, count, self.layout.bytes)
        return found

    @cached_property
    def sample_flops(self) -> float:
        """What training on one sample takes, counted once."""
        known = self.recipe.clock.sample_flops
        if known is not None:
            return known
        stack = BatchedModel.of(self.module, self.layout, self.federation.sample_shape)
        if stack is not None:  # PyTorch's counter finds the same, but takes seconds to load
            return stack.training_flops
        return training_flops(self.module, *example_batch(self.federation), cross_entropy)

    def stopwatch(self, plan: RoundPlan) -> TimeModel:
        """Who knows how long things take in a round; the same for all rounds in which the same things travel."""
        extras = self.extras(plan)
        key = tuple((kind, *names) for kind, names in extras.items())
        if key not in self._stopwatches:
            epochs = self.experiment.train.epochs
            self._stopwatches[key] = TimeModel(
                self.devices,
                self.federation.size,
                self.sample_flops,
                epochs,
                self.payloads,
                extras,
                self.recipe.clock.merge_seconds,
                guard_passes(self.experiment.guard, self.federation) * self.sample_flops / 3,
            )
        return self._stopwatches[key]

    @cached_property
    def _stopwatches(self) -> dict[tuple[tuple[str, ...], ...], TimeModel]:
        return {}

    @cached_property
    def devices(self) -> DeviceOf:
        """What clients compute and communicate with."""
        clients = self.federation.clients
        devices = self.recipe.clock.devices(self.experiment.seed, clients)
        return lambda client: devices(client) if client < clients else SERVERS_OWN

    def virtual_time(
        self, plan: RoundPlan, overhead: Overhead = NO_OVERHEAD, measured: float | None = None
    ) -> VirtualTime:
        """How long a round would take, and how long models would wait for the slowest."""
        found = VirtualTime.of(self.stopwatch(plan).round_time(plan, overhead.delays))
        if plan.asynchronous is None:
            return found
        seconds = plan.asynchronous.seconds + max(overhead.delays, default=0.0)
        # Asynchronous models do not wait for each other.
        return found._replace(seconds=seconds if measured is None else measured, idle=0.0)

    def choosing_seconds(self, round: int) -> float:
        """How long the choice of clients for a round took; 0 where there was none to speak of."""
        warmup = self.recipe.warmup
        if self.choice is None or warmup is None or round > sum(phase.rounds for phase in warmup.phases()):
            return 0.0
        return self.choice(round).seconds

    def counted(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        """Arrivals with the samples that they count for in a mean."""
        warmup = self.recipe.warmup
        return arrivals if warmup is None else [warmup.counted(arrival, self.federation) for arrival in arrivals]

    def node(self, client: int) -> str:
        """What a client is called, where it is somebody's node."""
        return self._nodes[client] if 0 <= client < len(self._nodes) else ""

    @cached_property
    def _nodes(self) -> Sequence[str]:
        return node_names(self.experiment, self.federation)

    def first_weights(self) -> Tensor:
        """The model before the first round."""
        return self.layout.flatten(self.module)

    def accuracy_at(self, weights: Tensor, client: int) -> float:
        """The accuracy of a model on the samples of a client."""
        with one_thread():
            return accuracy(self._bench, weights, self.federation.samples(client))

    @cached_property
    def _bench(self) -> FlatModule:
        return FlatModule(copy.deepcopy(self.module), self.layout, self.experiment.train.device)

    def job(self, round: int = 1) -> TrainingJob:
        """What an engine needs for a round and those that are alike."""
        wanted = self.experiment
        return TrainingJob(
            module=self.module,
            layout=self.layout,
            federation=self.federation,
            train=wanted.train,
            terms=self.phase(round)[0].terms,
            seed=wanted.seed,
            lanes=wanted.engine.lanes,
            guard=wanted.guard,
            origin=self.origin,
        )

    def evidence(self, watch: Watch | None = None) -> ProfileInputs:
        """What profiles may look at; clients that have to compute something do so on an engine of their own."""

        def portray(
            job: TrainingJob, portrait: ClientProfiler, clients: Sequence[int], weights: Tensor
        ) -> Iterator[tuple[int, ProfileVector]]:
            with closing(start_engine(job, self.experiment)) as engine:
                for done, picture in enumerate(engine.profile_clients(portrait, clients, weights), start=1):
                    yield picture
                    if watch is not None and job.federation is self.federation:  # a probe's owner is no client
                        watch(done, len(clients))

        return ProfileInputs(self.federation, self.experiment.seed, self.job(), portray)

    def opening(self) -> dict[str, Any] | None:
        """The ledger's line for what clients did before the first round, if they did anything."""
        errands = self.errands()
        transfers = sum((errand.totals() for errand in errands), TransferTotals())
        if not transfers.total:
            return None
        updates = sum(errand.updates for errand in errands)
        line = ledger_line(0, transfers, updates=updates, longest=min(1, updates))
        watch = TimeModel(self.devices, self.federation.size, self.sample_flops, 1, {})
        return line | VirtualTime.together(VirtualTime.of(watch.setup_time(errand)) for errand in errands).named()

    def errands(self) -> list[SetupStep]:
        """What clients do once before the first round, one thing after another; each is told once, whoever needs it."""
        surveys = [survey.errand for survey in (self.survey, self.selection) if survey is not None]
        holders = np.flatnonzero(self.federation.sizes()).tolist() if self.recipe.needs_histograms else []
        return [
            *(errand for errand in surveys if errand is not None),
            *([histograms(holders, self.federation.classes)] if holders else []),
            *(self.recipe.warmup.errands(self.federation) if self.recipe.warmup is not None else ()),
        ]

    def findings(self) -> dict[str, dict[str, Tensor]]:
        """What a run keeps of the pass before its first round, file by file, so that it is never repeated."""
        clients = torch.from_numpy(np.flatnonzero(self.federation.sizes()))
        files: dict[str, dict[str, Tensor]] = {}
        for name, survey in ((PROFILES, self.survey), (SELECTION, self.selection)):
            if survey is not None and survey.errand is not None:
                files[name] = {"clients": clients, "vectors": torch.from_numpy(np.ascontiguousarray(survey.vectors))}
                files |= {PROBE: dict(survey.probe)} if survey.probe else {}
        return files

    def summary(self) -> dict[str, Any]:
        """What is known before the first round, and what that round will cost."""
        return {
            "clients": self.federation.clients,
            "groups": [list(group) for group in self.scene.groups],
            "payloads": dict(self.payloads),
            "parameters": self.layout.trainable,
            "opening": self.opening(),
            "first_round": self.cost([self.plan(1)]),
            **({"attack": self.attack} if self.attack else {}),
        }

    @property
    def attack(self) -> dict[str, Any]:
        """Who attacks, and how much; empty where nobody does."""
        below = self.federation.members if isinstance(self.federation, PublicFederation) else self.federation
        return below.facts() if isinstance(below, FlippedFederation) else {}

    def cost(self, plans: Iterable[RoundPlan]) -> dict[str, Any]:
        """What rounds cost, before anything is trained."""
        rounds = updates = longest = 0
        transfers, times = TransferTotals(), []
        for plan in plans:
            rounds, updates, longest = rounds + 1, updates + plan.client_updates, max(longest, plan.longest)
            transfers += self.tally(plan)
            times.append(self.virtual_time(plan))
        return {
            "rounds": rounds,
            "client_updates": updates,
            "longest_route": longest,
            "transfers": transfers.counts(),
            "bytes": transfers.bytes,
            **VirtualTime.together(times).named(),
        }


def prepare(
    experiment: Experiment,
    *,
    federation: Federation | None = None,
    module: nn.Module | None = None,
    groups: Groups | None = None,
    survey: ProfilingResult | None = None,
    selection: ProfilingResult | None = None,
    watch: Watch | None = None,
) -> PreparedExperiment:
    """Make an experiment concrete, with data, module and groups of the caller's own where given."""
    setting = prepare_without_groups(experiment, federation=federation, module=module)
    grouping, warmup, evidence = setting.recipe.grouping, setting.recipe.warmup, setting.evidence(watch)
    scene, began, trained = setting.scene, time.monotonic(), False
    if grouping is not None:
        if survey is None and (groups is None or setting.recipe.route.counts_groups):
            survey, trained = grouping.survey(evidence), grouping.trains
        if setting.recipe.route.counts_groups:
            scene = replace(scene, regroup=lru_cache(maxsize=4)(partial(_regroup, grouping, evidence, survey)))
        else:
            scene = replace(scene, groups=grouping.form(evidence, survey) if groups is None else groups)
    selector = warmup.selector if warmup is not None else None
    choice: Callable[[int], Selection] | None = None
    if selector is not None:
        if selector.needs_vectors and selection is None:
            selection, trained = models_of_clients(evidence), True
        choose = lru_cache(maxsize=4)(partial(_chosen, selector, setting, selection))
        scene = replace(scene, chosen=lambda round: choose(round).clients)
        choice = choose if selector.needs_vectors else None
    seconds = time.monotonic() - began if trained else 0.0
    scene = replace(scene, duration=partial(_duration, setting))
    setting = replace(setting, scene=scene, survey=survey, selection=selection, survey_seconds=seconds, choice=choice)
    if setting.experiment.attack.name == "label-flip":  # after groups were formed
        flip = partial(flip_labels, attack=setting.experiment.attack, groups=scene.groups, seed=scene.seed)
        setting = replace(setting, federation=below_public(setting.federation, flip))
    if warmup is not None and len(setting.phases) == len(warmup.phases()) > 0:
        log.warning("the warm-up takes all %d rounds; the method itself never begins", setting.experiment.rounds)
    check_faults(setting.experiment.faults, setting.federation.clients)
    warn_about_unreached_rounds(setting.experiment)
    setting.devices(0)  # impossible devices and route options show before anything is written
    setting.plan(1)
    setting.recipe.merge.check(lambda: len(setting.plan(setting.experiment.rounds).routes))
    check_budget(setting.recipe.privacy)
    if setting.recipe.privacy is not None and setting.recipe.describes_samples:
        log.warning("what clients tell of their samples beside the model has no noise; epsilon does not cover it")
    for warning in filter(None, (term.warning(setting.experiment.train) for term in setting.recipe.terms)):
        log.warning(warning)
    return setting


def _regroup(
    grouping: Grouping, evidence: ProfileInputs, survey: ProfilingResult | None, count: int, key: int
) -> Groups:
    """So many groups, formed under a key."""
    return grouping.form(evidence, survey, count=count, key=key)


def _duration(setting: PreparedExperiment, clients: tuple[int, ...], handover: Handover) -> float:
    """How long a model takes through these clients by the virtual clock."""
    plan = RoundPlan(setting.experiment.rounds, (Route(clients),), handover)
    return setting.stopwatch(plan).route_time(clients, handover).seconds


def models_of_clients(evidence: ProfileInputs) -> ProfilingResult:
    """One weight vector a client, each from one epoch, by which a selector compares them."""
    clients = np.flatnonzero(evidence.federation.sizes())
    return PROFILES_BY_NAME["weights"].describe(evidence, clients, ProfileOptions(epochs=1, variance=None))


def _chosen(
    selector: Selector, setting: PreparedExperiment, selection: ProfilingResult | None, round: int
) -> Selection:
    """Who is chosen for a round; only clients that hold data were asked to describe themselves."""
    sizes = setting.federation.sizes()
    holders = np.flatnonzero(sizes)
    rng = setting.scene.rng("selection", round)
    start = setting.first_weights()[: setting.layout.trainable].double().numpy()
    vectors = selection.vectors if selection is not None else None
    found = selector.select_clients(sizes[holders], rng, vectors, start)
    return replace(found, clients=tuple(holders[list(found.clients)].tolist()))


def check_preparable(
    experiment: Experiment, *, federation: Federation | None = None, module: nn.Module | None = None
) -> None:
    """Find out whether an experiment can be made concrete, without training anything."""
    if build_method(experiment).profiles_clients:
        prepare_without_groups(experiment, federation=federation, module=module)
    else:
        prepare(experiment, federation=federation, module=module)


def prepare_without_groups(
    experiment: Experiment, *, federation: Federation | None = None, module: nn.Module | None = None
) -> PreparedExperiment:
    """All of a setting but its groups, which may take time to form."""
    method = build_method(experiment)
    check_device(experiment.train.device)
    [experiment] = with_watched_classes(with_public_samples([experiment]))
    if experiment.guard.tolerance is not None and not experiment.data.public:
        raise SpecError("guard.tolerance: needs public samples to look at; data.public must be at least 1")
    federation = open_data(experiment, federation)
    check_classes(experiment, method, federation)
    if method.pools_data:
        federation = below_public(federation, PooledFederation)
    if method.warmup is not None:
        federation = below_public(federation, partial(method.warmup.share, seed=experiment.seed))
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(experiment.seed, "init"))
        experiment, origin = with_absolute_paths(experiment), None
        if module is None:
            experiment = with_default_model(experiment, federation)
            module = build_module(experiment, federation)
            origin = module_builder(experiment, federation, method)
        check_fit(module, federation)
        for term in method.terms:
            module = term.adapt(module)
    scene = PlanningContext(
        federation.clients, experiment.fraction, experiment.seed, holds=lambda client: federation.size(client) > 0
    )
    setting = PreparedExperiment(experiment, method, federation, scene, module, FlatLayout.of(module), origin=origin)
    check_engine(setting.job(), experiment, [phase.route for phase in setting.phases])
    if method.grouping is not None:
        method.grouping.check(setting.evidence())
    return setting
