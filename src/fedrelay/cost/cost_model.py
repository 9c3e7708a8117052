"""The cost model of a run: transfers, bytes, virtual time, setup costs and spent privacy. Nothing is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from fedrelay.cost.devices import SERVER_DEVICE, DeviceOf
from fedrelay.cost.flops import training_flops
from fedrelay.cost.ledger import (
    KINDS,
    ExtraPayloads,
    Kind,
    SetupCost,
    SetupTransfer,
    TransferTotals,
    histograms,
    ledger_line,
    transfer_counts,
    transfer_totals,
)
from fedrelay.cost.term_transfers import ROUND_MODEL, round_models, term_transfers
from fedrelay.cost.time_model import TimeModel, VirtualTime, once, one_after_another
from fedrelay.data.table_federation import shared_encoding
from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.local.model_checks import example_batch
from fedrelay.local.terms.tensor_declarations import value_count
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.batched import BatchedModel
from fedrelay.robustness.guard import guard_forward_passes
from fedrelay.routes.execution_overlay import NO_FAULT_COSTS, FaultCosts
from fedrelay.routes.plan import ENVELOPE_BYTES, Handover, RoundPlan, Route


class CostModel:
    """What rounds of a prepared experiment cost."""

    def __init__(self, prepared: PreparedExperiment) -> None:
        self.prepared = prepared
        self.models = _models(prepared)
        """The model of each kind of transfer: name → bytes."""
        self._time_models: dict[tuple[int, tuple[tuple[str, ...], ...]], TimeModel] = {}

    @property
    def payloads(self) -> dict[str, int]:
        """All forms in which models travel: name → bytes."""
        return {name: size for sizes in self.models.values() for name, size in sizes.items()}

    @cached_property
    def devices(self) -> DeviceOf:
        """The device of each client; what comes after all clients is the server's own."""
        clients = self.prepared.federation.client_count
        device_of = self.prepared.method.clock.devices(self.prepared.experiment.seed, clients)
        return lambda client: device_of(client) if client < clients else SERVER_DEVICE

    @cached_property
    def sample_flops(self) -> float:
        """FLOPs of training on one sample."""
        prepared, known = self.prepared, self.prepared.method.clock.sample_flops
        if known is not None:
            return known
        batched = BatchedModel.of(prepared.module, prepared.layout, prepared.federation.sample_shape)
        if batched is not None:  # PyTorch's counter finds the same, but takes seconds to load
            return batched.training_flops
        return training_flops(prepared.module, *example_batch(prepared.federation), prepared.task.loss_of_model_outputs)

    def extras(self, plan: RoundPlan) -> ExtraPayloads:
        """What travels beside the model in a round, by kind of transfer.

        The model of the round is part of it where at least half of the transfers of a kind carry it.
        """
        phase, layout = self.prepared.phase(plan.round), self.prepared.layout
        found: dict[Kind, dict[str, int]] = {kind: {} for kind in KINDS}
        for term in phase.terms:
            for kind, tensors in term_transfers(term, first=plan.round == phase.first).items():
                found[kind] |= {each.name: value_count(each, layout.size) * layout.dtype.itemsize for each in tensors}
        counts = transfer_counts(plan)
        for kind, count in round_models(phase.terms, plan).items():
            if 2 * count >= counts[kind]:
                found[kind][ROUND_MODEL] = self._from_server
        return found

    def transfers(self, plan: RoundPlan, fault_costs: FaultCosts = NO_FAULT_COSTS) -> TransferTotals:
        """The transfers of a round. Transfers without effect have the usual bytes of their kind."""
        extras, sent = self.extras(plan), round_models(self.prepared.phase(plan.round).terms, plan)
        with_every_model = {kind: {**extra} for kind, extra in extras.items()}
        for kind in KINDS:
            if with_every_model[kind].pop(ROUND_MODEL, None):
                sent[kind] += sum(times for each, times in fault_costs.wasted if each == kind)
        found = transfer_totals(plan, {}, self._with_models(with_every_model), fault_costs.wasted)
        for kind, count in sent.items():
            found += TransferTotals.of(kind, ROUND_MODEL, count, count * self._from_server)
        if plan.handover == "sealed":  # an envelope is part of the transfer of its model
            handed_on = sum(len(route.clients) - 1 for route in plan.routes if route.clients)
            for kind in ("c2s", "s2c"):
                found += TransferTotals.of(kind, "envelope", 0, handed_on * ENVELOPE_BYTES)
        return found

    @property
    def _from_server(self) -> int:
        """The bytes of a model that the server sends."""
        return sum(self.models["s2c"].values())

    def _with_models(self, extras: ExtraPayloads) -> ExtraPayloads:
        return {kind: {**self.models[kind], **extras[kind]} for kind in KINDS}

    def time_model(self, plan: RoundPlan) -> TimeModel:
        """The time model of a round; all rounds in which the same things travel share it."""
        extras = self.extras(plan)
        terms = self.prepared.phase(plan.round).terms
        gradients = max((term.gradients_per_step for term in terms), default=1)
        key = (gradients, tuple((kind, *names) for kind, names in extras.items()))
        if key not in self._time_models:
            prepared = self.prepared
            checks = guard_forward_passes(prepared.experiment.guard, prepared.federation)
            self._time_models[key] = TimeModel(
                self.devices,
                prepared.federation.sample_count,
                self.sample_flops,
                _passes_per_hop(prepared.job(plan.round), gradients),
                {},
                self._with_models(extras),
                prepared.method.clock.merge_seconds,
                checks * self.sample_flops / 3,
            )
        return self._time_models[key]

    def virtual_time(
        self, plan: RoundPlan, fault_costs: FaultCosts = NO_FAULT_COSTS, measured: float | None = None
    ) -> VirtualTime:
        """How long a round takes, and how long models wait for the slowest.

        `measured` are seconds by the real clock; they count where real arrivals decide which model goes where.
        """
        found = self.time_model(plan).round_time(plan, fault_costs.delays)
        if plan.asynchronous is None:
            return found
        seconds = plan.asynchronous.seconds + max(fault_costs.delays, default=0.0)
        if plan.asynchronous.real and measured is not None:
            seconds = measured
        return found._replace(virtual_seconds=seconds, idle_seconds=0.0)  # models do not wait for each other

    def route_seconds(self, clients: tuple[int, ...], handover: Handover) -> float:
        """How long one model takes through these clients, from the server and back."""
        plan = RoundPlan(self.prepared.experiment.rounds, (Route(clients),), handover)
        return self.time_model(plan).route_times(plan)[0].seconds

    def total(self, plans: Iterable[RoundPlan]) -> dict[str, Any]:
        """What rounds cost together."""
        rounds = updates = longest = 0
        sent, times = TransferTotals(), []
        for plan in plans:
            rounds, updates, longest = rounds + 1, updates + plan.client_updates, max(longest, plan.longest)
            sent += self.transfers(plan)
            times.append(self.virtual_time(plan))
        return {
            "rounds": rounds,
            "client_updates": updates,
            "longest_route": longest,
            "transfers": sent.counts(),
            "bytes": sent.bytes,
            **one_after_another(times)._asdict(),
        }

    def setup_line(self) -> dict[str, Any] | None:
        """Line 0 of the ledger: what clients did before the first round, step by step; None if they did nothing."""
        prepared, method = self.prepared, self.prepared.method
        profiling = [found.setup for found in (prepared.profiling, prepared.selection) if found is not None]
        steps = [step for step in profiling if step is not None]
        if prepared.layout.frozen and not method.pools_data:
            frozen = SetupTransfer("frozen parameters", prepared.layout.frozen_bytes)
            steps.insert(0, SetupCost(prepared.holders(), down=frozen))
        if not method.pools_data:
            steps = [*_table_costs(prepared), *steps]
        if senders := self.class_count_senders():
            steps.append(histograms(senders, prepared.federation.class_count))
        if method.warmup is not None:
            steps += method.warmup.setup_costs(prepared.federation)
        sent = sum((step.totals() for step in steps), TransferTotals())
        if not sent.total:
            return None
        updates = sum(step.updates for step in steps)
        line = ledger_line(0, sent, updates=updates, longest=min(1, updates))
        times = TimeModel(self.devices, self.prepared.federation.sample_count, self.sample_flops, once, {})
        return line | one_after_another(map(times.setup_time, steps))._asdict()

    def class_count_senders(self) -> list[int]:
        """The clients that send the server how many samples of each class they have."""
        prepared = self.prepared
        wanted = prepared.method.needs_class_counts or prepared.task_counts_classes
        if not wanted or not prepared.federation.class_count:
            return []
        unshared = prepared.profiling.unshared if prepared.profiling is not None else ()
        return [client for client in prepared.holders() if client not in unshared]

    def evaluation_line(self, round: int, sent: Mapping[int, int], *, own_models: bool) -> dict[str, Any] | None:
        """The line of the ledger of an evaluation of single clients; None where all data are in one place.

        Args:
            round: The round after which they were evaluated.
            sent: Client → the bytes of its answer.
            own_models: Whether clients evaluate models of their own. They have these already, unless they are nodes.
        """
        prepared = self.prepared
        if prepared.method.pools_data or not sent:
            return None
        own = own_models and not prepared.experiment.data_at_nodes
        step = SetupCost(
            tuple(sent),
            down=None if own else SetupTransfer("evaluated model", prepared.layout.bytes),
            up=SetupTransfer("evaluation", tuple(sent.values())),
            work=lambda samples, flops: samples * flops,
        )
        train, steps = prepared.experiment.train, prepared.experiment.eval.fine_tune

        def trained_samples(client: int) -> int:
            """How many samples could be trained on in the time: a forward pass is a third of it."""
            tuning = steps * min(train.batch_size, prepared.federation.sample_count(client))
            return tuning + -(-prepared.held_out_counts[client] // 3)

        times = TimeModel(self.devices, trained_samples, self.sample_flops, once, {}).setup_time(step)
        line = ledger_line(round, step.totals(), updates=0, longest=0)
        return line | times._asdict() | {"evaluation": True}

    def privacy(self, hops: Mapping[int, int]) -> dict[str, Any]:
        """The privacy that clients have spent after this number of hops each; empty without differential privacy."""
        term = self.prepared.method.privacy
        return {} if term is None else term.accountant.spent(hops, self.prepared.holders())


def _models(prepared: PreparedExperiment) -> dict[Kind, dict[str, int]]:
    """The name and the bytes of a model, by kind of transfer."""
    codec, whole = prepared.codec, {"model": prepared.layout.bytes}
    if codec is None:
        return dict.fromkeys(KINDS, whole)
    if codec.from_server:
        return {kind: {"model": codec.bytes} for kind in KINDS}
    changed = {"changed weights": codec.bytes}
    return {"s2c": whole, "c2s": changed, "c2c": changed}


def _table_costs(prepared: PreparedExperiment) -> tuple[SetupCost, ...]:
    """Clients with rows of a table send the sums of their columns, then receive how rows are encoded."""
    shared, clients = shared_encoding(prepared.federation), prepared.holders()
    if shared is None or not clients:
        return ()
    return (
        SetupCost(clients, up=SetupTransfer("table sums", [shared.sent[client] for client in clients])),
        SetupCost(clients, down=SetupTransfer("table encoding", shared.received)),
    )


def _passes_per_hop(job: TrainingJob, gradients: int) -> Callable[[int], float]:
    """Client → how often a hop goes through its samples, if each step computes this many gradients."""
    if job.train.steps == "by-size":
        return lambda client: job.train.epochs * gradients
    return lambda client: gradients * job.samples_seen(client) / max(1, job.federation.sample_count(client))
