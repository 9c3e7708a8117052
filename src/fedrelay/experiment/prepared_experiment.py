"""The prepared experiment: everything that stays the same during a run, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor, nn

from fedrelay.data.client_names import client_names
from fedrelay.data.evaluation_samples import EvaluationSet, evaluation_subset
from fedrelay.data.federation import Federation
from fedrelay.data.holdout import without_pooling
from fedrelay.data.partition import Ints
from fedrelay.engines.start import has_validation, held_out_counts, node_names
from fedrelay.errors import SpecError
from fedrelay.experiment.method import Method
from fedrelay.experiment.spec import Experiment, TransferSettings, unknown
from fedrelay.grouping.profiles import ProfilingResult
from fedrelay.local.module_rebuilder import ModuleRebuilder
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.models.frozen_parameter_serialization import frozen_bytes, frozen_sha256
from fedrelay.routes.base import Groups
from fedrelay.tasks.base import Task
from fedrelay.tasks.task_facts import TaskFacts
from fedrelay.transfer.model_codec import ModelCodec
from fedrelay.user_code import is_built_in, is_code_reference, module_of_reference
from fedrelay.warmup.base import Phase


@dataclass(frozen=True)
class PreparedExperiment:
    """The data, the model, the parts of the method and the groups of one experiment."""

    experiment: Experiment
    method: Method
    phases: tuple[Phase, ...]
    federation: Federation
    module: nn.Module
    layout: FlatLayout
    task: Task
    """The task with everything filled in that depends on the data."""

    task_reference: str | None = None
    """`MODULE:NAME`, where the task is of the user's own and was named."""

    task_counts_classes: bool = False
    """Whether clients were asked for their class counts, for weights of the classes."""

    module_rebuilder: ModuleRebuilder | None = None
    """How other processes build the module; None where the caller brought the module."""

    groups: Groups = ()
    profiling: ProfilingResult | None = None
    """The clients' profiles, where groups depend on them."""

    selection: ProfilingResult | None = None
    """The clients' profiles, where the clients of a warm-up are chosen by them."""

    profiling_seconds: float = 0.0

    @cached_property
    def task_facts(self) -> TaskFacts:
        """The metrics of the task, and the one that the run is judged by."""
        return TaskFacts.of(self.task, self.experiment.eval.metric, self.federation.class_count)

    def phase(self, round: int) -> Phase:
        """The phase that a round belongs to."""
        return next(phase for phase in self.phases if round <= phase.last)

    def user_modules(self) -> set[str]:
        """The modules of the user's own: plug-ins, and those that the model, the task, the optimiser
        and the schedule come from."""
        parts = [part for phase in self.phases for part in (phase.route, phase.merge, *phase.terms)]
        kinds = {type(part) for part in (*parts, self.method.grouping, self.method.warmup) if part is not None}
        own = {kind.__module__ for kind in kinds if not is_built_in(kind)}
        named = (self.experiment.model.name, self.experiment.task.get("name"))  # MODULE:NAME
        modules = {module_of_reference(name) for name in named if is_code_reference(name)}
        return {*own, *self.experiment.plugins, *modules, *self.experiment.train.own_modules}

    @cached_property
    def has_validation(self) -> bool:
        """Whether there are validation samples, here or at nodes."""
        return has_validation(self.experiment, self.federation)

    @cached_property
    def evaluation_subset(self) -> dict[EvaluationSet, Ints]:
        """The numbers of the samples that are evaluated during a run; a set of which all are is missing."""
        count, federation = self.experiment.eval.subset, self.federation
        if count is None:
            return {}
        here: tuple[EvaluationSet, ...] = ("test", "validation")
        if self.experiment.data_at_nodes or not self.has_validation:  # nodes evaluate all of their samples
            here = ("test",)
        found = {each: evaluation_subset(federation, each, count, self.experiment.seed) for each in here}
        return {each: rows for each, rows in found.items() if rows is not None}

    @cached_property
    def held_out_counts(self) -> tuple[int, ...]:
        """The number of held-out samples of every client, which it is evaluated on; empty if no client has any."""
        return held_out_counts(self.experiment, self.federation)

    @cached_property
    def client_names(self) -> tuple[str, ...]:
        """The name of every client, also where the samples of all are pooled."""
        return client_names(without_pooling(self.federation), node_names(self.experiment, self.federation))

    @cached_property
    def last_rounds(self) -> dict[int, int]:
        """Client → its last round, of clients that leave for good.

        Raises:
            SpecError: There is no such client, or none would be left.
        """
        if not self.experiment.withdrawn:
            return {}
        names = node_names(self.experiment, self.federation) or [str(each) for each in self.clients]
        last_rounds = {}
        for name, round in self.experiment.withdrawn.items():
            if name not in names:
                raise SpecError(f"withdrawn: {unknown('client', name, names)}")
            last_rounds[names.index(name)] = round
        if not set(self.holders()) - last_rounds.keys():
            raise SpecError("withdrawn: at least one client with samples must stay")
        return last_rounds

    @property
    def clients(self) -> range:
        """All clients."""
        return range(self.federation.client_count)

    def has_left(self, client: int, round: int) -> bool:
        """Whether a client has left for good before a round."""
        return round > self.last_rounds.get(client, round)

    @property
    def transfer(self) -> TransferSettings:
        """How models are sent; where data are pooled, none is."""
        return TransferSettings() if self.method.pools_data else self.experiment.transfer

    @cached_property
    def codec(self) -> ModelCodec | None:
        """How models are encoded; None: they are sent as they are."""
        return ModelCodec.of(self.transfer, self.layout)

    def holders(self) -> list[int]:
        """All clients with samples."""
        found: list[int] = np.flatnonzero(self.federation.sample_counts()).tolist()
        return found

    def state_dict(self, weights: Tensor) -> dict[str, Tensor]:
        """A model under the module's own names, with its frozen parameters."""
        return self.layout.state_dict(weights, self.module)

    @property
    def frozen_sha256(self) -> str | None:
        """A hash of the frozen parameters; None if the model has none."""
        return frozen_sha256(frozen_bytes(self.module)) if self.layout.frozen else None

    def job(self, round: int = 1) -> TrainingJob:
        """What an engine needs for the rounds of one phase."""
        wanted = self.experiment
        return TrainingJob(
            module=self.module,
            layout=self.layout,
            federation=self.federation,
            train=wanted.train,
            terms=self.phase(round).terms,
            seed=wanted.seed,
            rounds=wanted.rounds,
            task=self.task,
            task_reference=self.task_reference,
            lanes=wanted.engine.lanes,
            transfer=self.transfer,
            guard=wanted.guard,
            module_rebuilder=self.module_rebuilder,
        )
