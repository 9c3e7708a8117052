"""Prepare an experiment: load the data, build the model, form the groups.

Nothing is trained, unless groups or the clients of a warm-up depend on profiles: then every client computes one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedrelay.cost.cost_model import CostModel
from fedrelay.data.evaluation_samples import evaluation_samples
from fedrelay.data.own_data_per_seed import OwnData, OwnDataPerSeed
from fedrelay.data.pooled_federation import PooledFederation
from fedrelay.data.table_federation import shared_encoding
from fedrelay.engines.start import check_engine, start_engine
from fedrelay.errors import SpecError
from fedrelay.experiment.comparison_runs import with_public_samples, with_watched_classes
from fedrelay.experiment.data_and_model import (
    OwnModel,
    below_public,
    build_module,
    check_classes,
    check_faults,
    check_per_client,
    check_stop,
    check_task,
    module_rebuilder,
    open_data,
    own_module,
    own_task_reference,
    spec_sets_grouping,
    with_absolute_paths,
    with_default_model,
    with_own_data,
    without_classes,
)
from fedrelay.experiment.method import build_method, with_train_settings_of_method
from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.experiment.spec import Experiment
from fedrelay.grouping.profiles import PROFILES, ProfileInputs, ProfileOptions, ProfilingResult
from fedrelay.local.client_profiler import ClientProfiler, ProfileVector
from fedrelay.local.error_feedback import error_feedback_terms
from fedrelay.local.model_checks import (
    check_device,
    check_finite_parameters,
    check_frozen_parameters,
    check_model_fits,
    check_precision,
)
from fedrelay.local.optimizers.build import build_optimizer
from fedrelay.local.optimizers.state_terms import optimizer_state_terms
from fedrelay.local.term_lane_check import check_terms_in_lanes
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import TORCH_GLOBALS, FlatLayout
from fedrelay.privacy.checks import check_budget
from fedrelay.privacy.sealed_routes import check_sealed_plan, last_client_warning
from fedrelay.rng import torch_seed
from fedrelay.robustness.label_flip import flip_labels
from fedrelay.routes.base import Groups
from fedrelay.runtime.planner import Planner
from fedrelay.tasks.base import Task
from fedrelay.tasks.registry import build_task
from fedrelay.tasks.task_facts import TaskFacts
from fedrelay.user_code import errors_in_own_part

log = logging.getLogger(__name__)

OnProfilingProgress = Callable[[int, int], None]
"""Called with the number of clients that have computed their profile, and the number of all."""


class PreparedRun(NamedTuple):
    """A prepared experiment with its planner and its cost model."""

    prepared: PreparedExperiment
    planner: Planner
    costs: CostModel


@errors_in_own_part()
def prepare(
    experiment: Experiment,
    *,
    federation: OwnData | None = None,
    module: OwnModel | None = None,
    task: Task | None = None,
    groups: Groups | None = None,
    profiling: ProfilingResult | None = None,
    selection: ProfilingResult | None = None,
    on_profiling_progress: OnProfilingProgress | None = None,
) -> PreparedRun:
    """Prepare an experiment and check that its first round can be planned.

    Args:
        experiment: What to prepare.
        federation: The caller's own data, instead of those that the experiment names.
        module: The caller's own model, or a function that builds it.
        task: The caller's own task.
        groups: Groups that were formed before; they are not formed again.
        profiling: Profiles that groups were formed by; they are not computed again.
        selection: Profiles that clients of a warm-up are chosen by; they are not computed again.
        on_profiling_progress: Called after each profile.
    """
    prepared = prepare_without_groups(experiment, federation=federation, module=module, task=task)
    method, inputs = prepared.method, inputs_of_profiles(prepared, on_profiling_progress)
    began, trained = time.monotonic(), False
    if (grouping := method.grouping) is not None:
        regroups = method.route.chooses_group_count  # then groups are formed when a round is planned
        if profiling is None and (groups is None or method.route.regroups):
            profiling, trained = grouping.profile_clients(inputs), grouping.needs_profiling_by_clients
        if groups is None or regroups:
            groups = () if regroups else grouping.form_groups(inputs, profiling)
    selector = method.warmup.selector if method.warmup is not None else None
    if selector is not None and selector.needs_vectors and selection is None:
        holders = np.flatnonzero(prepared.federation.sample_counts())
        after_one_epoch, job = ProfileOptions(epochs=1, variance=None), inputs.training_job()
        lr = selector.profile_lr or job.train.lr
        inputs = replace(inputs, job=replace(job, train=job.train.model_copy(update={"lr": lr})))
        selection, trained = PROFILES["weights"].compute(inputs, holders, after_one_epoch), True
    prepared = replace(
        prepared,
        groups=groups or (),
        profiling=profiling,
        selection=selection,
        profiling_seconds=time.monotonic() - began if trained else 0.0,
    )
    attack = prepared.experiment.attack
    if attack.name == "label-flip":  # after groups were formed
        flip = partial(flip_labels, attack=attack, groups=prepared.groups, seed=prepared.experiment.seed)
        prepared = replace(prepared, federation=below_public(prepared.federation, flip))
    costs = CostModel(prepared)
    run = PreparedRun(prepared, Planner(prepared, costs), costs)
    _check(run)
    return run


def _check(run: PreparedRun) -> None:
    """Find impossible settings before anything is written, and warn about settings without effect."""
    prepared, planner, costs = run
    experiment, method = prepared.experiment, prepared.method
    if method.warmup is not None and len(prepared.phases) == len(method.warmup.phases()) > 0:
        log.warning("the warm-up takes all %d rounds; the method itself never begins", experiment.rounds)
    if (experiment.train.schedule.rounds or 0) >= experiment.rounds:
        log.warning("train.schedule.rounds: the learning rate rises until the last of the %d rounds", experiment.rounds)
    check_stop(experiment, prepared.task, prepared.has_validation)
    check_evaluation_subset(prepared)
    check_per_client(experiment, bool(prepared.held_out_counts))
    if experiment.eval.per_client and method.privacy is not None:
        log.warning("clients send scores on held-out samples without noise; epsilon does not cover them")
    check_faults(experiment, prepared.federation.client_count)
    if experiment.eval.forgetting > experiment.rounds:
        late = (experiment.eval.forgetting, experiment.rounds)
        log.warning("eval.forgetting: has no effect: the first followed route would be in round %d of %d", *late)
    costs.devices(0)
    first = planner.plan(1)
    if first.handover == "sealed":
        rounds = experiment.rounds
        fastest = max(range(1, rounds + 1), key=lambda round: experiment.train.learning_rate(round, rounds))
        for round in sorted({1, fastest, rounds}):
            check_sealed_plan(planner.plan(round), prepared.job(round))
        if warning := last_client_warning(first, prepared.phase(1).route):
            log.warning(warning)
    method.merge.check_arrival_count(lambda: len(planner.plan(experiment.rounds).routes))
    check_budget(method.privacy)
    if prepared.profiling is not None and (unshared := prepared.profiling.unshared):
        count, nodes = len(unshared), len(prepared.holders())
        effect = "are random" if count == nodes else "treat them as the mean of the others"
        log.warning(
            "%d of %d nodes do not share how many samples of each class they have (--share-histogram), so the groups "
            "of %s %s",
            *(count, nodes, method.name, effect),
        )
    if method.privacy is not None and (method.profiles_clients or costs.class_count_senders()):
        log.warning("clients send profiles or class counts, which epsilon of terms.dp does not cover")
    noisy = method.grouping is not None and method.grouping.epsilon is not None
    by_order = any(phase.route.needs_class_counts for phase in prepared.phases)
    if noisy and (prepared.task_counts_classes or method.merge.needs_class_counts or by_order):
        log.warning("grouping.epsilon: class weights, the merge or the order of routes use counts without noise")
    if noisy and (experiment.data.validation or experiment.data.holdout):
        log.warning("grouping.epsilon: samples are set aside by label, so one label can change more than two counts")
    if method.privacy is not None and not method.pools_data and shared_encoding(prepared.federation) is not None:
        log.warning("clients send sums of their tables without noise; epsilon does not cover them")
    of_terms = filter(None, (term.training_warning(experiment.train) for term in method.terms))
    for warning in (*of_terms, *planner.warnings()):
        log.warning(warning)


def check_evaluation_subset(prepared: PreparedExperiment) -> None:
    """Refuse a subset of samples that are at nodes, and one that has all samples."""
    experiment, count = prepared.experiment, prepared.experiment.eval.subset
    if count is None or prepared.evaluation_subset:
        return
    test = prepared.federation.test.size
    if experiment.data_at_nodes and not test:
        raise SpecError(
            "eval.subset: nodes evaluate models on all of their samples; give the server test samples (engine.test), "
            "or evaluate less often (eval.every)"
        )
    if prepared.has_validation and not experiment.data_at_nodes:
        validation = evaluation_samples(prepared.federation, "validation").size
        least, what = max(test, validation), f"there are {test} test and {validation} validation samples"
    else:
        least, what = test, f"there are {test} test samples"
    raise SpecError(f"eval.subset: must be less than {least}, because {what}, got {count}")


def check_preparable(
    experiment: Experiment,
    *,
    federation: OwnData | None = None,
    module: OwnModel | None = None,
    task: Task | None = None,
) -> None:
    """Check that an experiment can be prepared, without training anything."""
    if build_method(experiment).profiles_clients:
        prepare_without_groups(experiment, federation=federation, module=module, task=task)
    else:
        prepare(experiment, federation=federation, module=module, task=task)


def prepare_without_groups(
    experiment: Experiment,
    *,
    federation: OwnData | None = None,
    module: OwnModel | None = None,
    task: Task | None = None,
) -> PreparedExperiment:
    """A prepared experiment without its groups, which may take long to form."""
    method, experiment = build_method(experiment), with_train_settings_of_method(experiment)
    check_device(experiment.train.device)
    build_optimizer(experiment.train)
    experiment.train.learning_rate(1, experiment.rounds)  # a schedule of the user's own may be missing or fail
    if experiment.data_at_nodes and method.grouping is not None and method.grouping.epsilon is not None:
        raise SpecError(
            "grouping.epsilon: is for simulations; the owners of nodes add the noise themselves "
            "(fedrelay node --share-histogram --histogram-epsilon EPSILON)"
        )
    kept = () if method.pools_data else error_feedback_terms(experiment.transfer)
    method = replace(method, terms=(*method.terms, *optimizer_state_terms(experiment.train), *kept))
    [experiment] = with_watched_classes(with_public_samples([experiment]))
    if experiment.guard.tolerance is not None and not experiment.data.public:
        raise SpecError("guard.tolerance: needs public samples; data.public must be at least 1")
    if experiment.guard.norm is not None and experiment.transfer.codec != "float32":
        raise SpecError(
            f"guard.norm: scales models down, which {experiment.transfer.codec!r} cannot encode exactly; "
            "set transfer.codec=float32"
        )
    if isinstance(federation, OwnDataPerSeed):
        federation = federation.federation(experiment.seed)
        experiment = with_own_data(experiment, federation)
    task_reference = own_task_reference(experiment, task)
    federation = open_data(experiment, method, federation, task_reference)
    check_classes(experiment, method, federation)
    if not federation.class_count:
        method = without_classes(method, experiment, federation)
    unprepared = task or build_task(experiment.task, federation.task)
    check_task(unprepared, experiment, method, federation.class_count)
    task = unprepared.prepared(federation)
    facts = TaskFacts.of(task, experiment.eval.metric, federation.class_count)
    experiment = experiment.model_copy(update={"eval": experiment.eval.model_copy(update={"metric": facts.headline})})
    if method.pools_data:
        federation = below_public(federation, PooledFederation)
    if method.warmup is not None:
        federation = below_public(
            federation, partial(method.warmup.with_samples_shared_by_clients, seed=experiment.seed)
        )
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(experiment.seed, "init"))
        experiment, builder = with_absolute_paths(experiment), None
        if module is None:
            experiment = with_default_model(experiment, federation)
            module = build_module(experiment, federation, task.output_count(federation))
            builder = module_rebuilder(experiment, federation, method, task.output_count(federation))
        module = own_module(module, federation, task.output_count(federation))
        check_model_fits(module, federation, task)
        check_finite_parameters(module)
        for term in method.terms:
            with errors_in_own_part(term, "adapt_model"):
                module = term.adapt_model(module)
                if not isinstance(module, nn.Module):
                    raise TypeError(f"must return a torch.nn.Module, got {type(module).__name__}")
        for term in method.terms:
            with errors_in_own_part(term, "check_model"):
                term.check_model(module)
    check_frozen_parameters(module, federation)
    layout = FlatLayout.of(module)
    check_precision(experiment.train.precision, experiment.train.device, layout.dtype)
    phases = method.phases(experiment.rounds)
    prepared = PreparedExperiment(
        experiment=experiment,
        method=method,
        phases=phases,
        federation=federation,
        module=module,
        layout=layout,
        task=task,
        task_reference=task_reference,
        task_counts_classes=unprepared.needs_class_counts,
        module_rebuilder=builder,
    )
    check_engine(prepared.job(), experiment, [phase.route for phase in phases])
    for phase in phases:
        check_terms_in_lanes(prepared.job(phase.first))
    if method.grouping is not None:
        method.grouping.check_inputs(inputs_of_profiles(prepared))
    return prepared


def inputs_of_profiles(
    prepared: PreparedExperiment, on_profiling_progress: OnProfilingProgress | None = None
) -> ProfileInputs:
    """What profiles may look at. Clients that have to train for their profile do so on an engine of their own."""

    def run_profiler(
        job: TrainingJob, profiler: ClientProfiler, clients: Sequence[int], weights: Tensor
    ) -> Iterator[tuple[int, ProfileVector]]:
        with closing(start_engine(job, prepared.experiment)) as engine:
            for done, found in enumerate(engine.profile_clients(profiler, clients, weights), start=1):
                yield found
                if (
                    on_profiling_progress is not None and job.federation is prepared.federation
                ):  # a probe has data of its own
                    on_profiling_progress(done, len(clients))

    experiment = prepared.experiment
    only_by_default = experiment.data_at_nodes and not spec_sets_grouping(experiment)
    return ProfileInputs(prepared.federation, experiment.seed, prepared.job(), run_profiler, only_by_default)
