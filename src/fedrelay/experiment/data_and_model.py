"""The data and the model of an experiment, and checks of its settings against them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from fedrelay.cost.ledger import KINDS
from fedrelay.data.federation import Federation
from fedrelay.data.federation_wrapper import find_wrapper
from fedrelay.data.holdout import FederationWithHoldout, with_holdout
from fedrelay.data.open_federation import open_federation
from fedrelay.data.public_samples import FederationWithPublicSamples, with_public
from fedrelay.data.table_column_reader import TABLE_FILES
from fedrelay.data.validation_samples import FederationWithValidationSamples, with_validation
from fedrelay.engines.start import open_node_data
from fedrelay.errors import SpecError
from fedrelay.experiment.method import Method
from fedrelay.experiment.spec import Experiment
from fedrelay.files import expand_home
from fedrelay.grouping.grouping import Grouping
from fedrelay.grouping.profiles.probe_network import FILES
from fedrelay.local.module_rebuilder import ModuleRebuilder, ZooModelRebuilder
from fedrelay.models.nested_inputs import single_shape
from fedrelay.models.two_part_classifier import Kind, Shape
from fedrelay.models.zoo import build_model, default_model
from fedrelay.robustness.label_flip import check_attack
from fedrelay.routes.all_to_all import AllToAll
from fedrelay.runtime.result import on_validation
from fedrelay.tasks.base import Task
from fedrelay.tasks.task_facts import TaskFacts
from fedrelay.user_code import (
    accepts,
    call_function,
    call_own,
    is_built_in,
    is_code_reference,
    is_findable_elsewhere,
    module_of_reference,
    name_of,
)

log = logging.getLogger(__name__)

OwnModel = nn.Module | Callable[..., nn.Module]
"""The caller's own model, or a function that builds one under the seed of each run.

A function that takes two arguments gets the shape of a sample (of several inputs, a tuple or a dict of shapes) and the
number of outputs.
"""


def below_public(federation: Federation, change: Callable[[Federation], Federation]) -> Federation:
    """Change a federation below its public set, which profiles and guards expect outermost."""
    if isinstance(federation, FederationWithPublicSamples):
        return replace(federation, inner=change(federation.inner))
    return change(federation)


def check_classes(experiment: Experiment, method: Method, federation: Federation) -> None:
    """Check that the data have all classes that the experiment names."""
    if experiment.attack.name != "none":
        if method.pools_data:
            raise SpecError(f"attack: method {method.name!r} has all data in one place, so no client can attack")
        if federation.class_count:
            check_attack(experiment.attack, federation)
    if beyond := [each for each in experiment.eval.classes if each >= federation.class_count > 0]:
        raise SpecError(
            f"eval.classes: {federation.name!r} has the classes 0 … {federation.class_count - 1}, got {beyond[0]} "
            "(by default, the classes that attacks swap)"
        )


ROW_COLUMNS = (
    "round", "loss", "train_loss", "accuracy_classes", "bytes", "client_updates", "virtual_seconds", "epsilon", *KINDS,
    "test_samples", "validation_samples",
)  # fmt: skip
"""What rows of `metrics.jsonl` have beside the metrics of the task."""


def check_metric_names(task: Task) -> None:
    """Refuse metrics of the user's own whose names are taken, or cannot be shown in one line."""
    taken = {*ROW_COLUMNS, *map(on_validation, (*task.metrics, "loss"))}
    for name in task.metrics:
        if name in taken:
            raise SpecError(f"task: the metric {name!r} has the name of another column; give it another name")
        if not name.isprintable() or not name.strip():
            raise SpecError(f"task: {name!r} is no name of a metric; use letters, digits and underscores")


_ONE_LABEL_TASKS = ("classification", "binary")
"""The tasks whose samples have one class each."""


def check_task(task: Task, experiment: Experiment, method: Method, class_count: int) -> None:
    """Check that the method's parts and the settings of an experiment fit its task."""
    check_metric_names(task)
    facts = TaskFacts.of(task, experiment.eval.metric, class_count)
    if facts.headline_info.percent and (experiment.eval.reference or 0) > 1:
        raise SpecError(
            f"eval.reference: must be at most 1, because {facts.headline} is, got {experiment.eval.reference:g}"
        )
    compared = facts.metric_info(facts.measured_on_clients)
    if experiment.eval.forgetting and not (compared.higher_is_better and compared.percent):
        raise SpecError(
            f"eval.forgetting: needs a metric between 0 and 1 of which more is better; {task.name!r} has "
            f"{facts.measured_on_clients}"
        )
    if isinstance(method.route, AllToAll) and method.route.weights == "accuracy" and not compared.higher_is_better:
        raise SpecError(
            f"route.weights: 'accuracy' needs a metric of which more is better; {task.name!r} has "
            f"{facts.measured_on_clients}; use uniform"
        )
    if experiment.train.batches == "class-weighted" and (not class_count or task.name not in _ONE_LABEL_TASKS):
        names = ", ".join(_ONE_LABEL_TASKS)
        raise SpecError(
            f"train.batches: 'class-weighted' fits tasks with a class per sample ({names}), not {task.name!r}"
        )
    for term in method.terms:
        if term.supported_tasks is not None and task.name not in term.supported_tasks:
            names = ", ".join(sorted(term.supported_tasks))
            raise SpecError(f"task: {type(term).__name__} of {method.name!r} fits the tasks {names}, not {task.name!r}")
    if task.name != "classification":
        if experiment.attack.name != "none":
            raise SpecError(
                f"attack: swaps the labels of classes, which fits the task classification, not {task.name!r}"
            )
        if experiment.eval.classes:
            raise SpecError(f"eval.classes: fits the task classification, not {task.name!r}")


def without_classes(method: Method, experiment: Experiment, federation: Federation) -> Method:
    """The method for data without classes: groups that would depend on classes are formed at random.

    Raises:
        SpecError: The experiment itself asks for groups or weights by classes.
    """
    if method.merge.needs_class_counts:
        raise SpecError(f"merge: {method.name!r} weights clients by their classes, but {federation.name!r} has none")
    if method.route.needs_class_counts:
        order = getattr(method.route, "order", method.name)
        raise SpecError(f"route.order: {order!r} needs classes, but {federation.name!r} has none; use size or random")
    grouping = method.grouping
    if grouping is None or not grouping.needs_class_counts:
        return method
    if spec_sets_grouping(experiment):
        raise SpecError(
            f"grouping.profile: {grouping.profile!r} needs classes, but {federation.name!r} has none; "
            "use clf or weights, or assign random"
        )
    log.warning("%s has no classes: groups are formed at random", federation.name)
    if grouping.assign == "icg":  # without classes all clients look alike, so its groups are random and of equal size
        return method
    return replace(method, grouping=Grouping(max_clients=grouping.max_clients, min_samples=grouping.min_samples))


def spec_sets_grouping(experiment: Experiment) -> bool:
    """Whether the experiment itself, and not only its method, says how groups are formed."""
    return bool({"assign", "profile"} & experiment.grouping.keys())


def check_faults(experiment: Experiment, clients: int) -> None:
    """Check that all clients that faults name exist, and warn about faults that begin after the last round."""
    for number, fault in enumerate(experiment.faults):
        for client in fault.clients or ():
            if client >= clients:
                raise SpecError(f"faults.{number}.clients: must be clients, 0 to {clients - 1}, got {client}")
        if fault.first > experiment.rounds:
            late = (number, fault.what, fault.first, experiment.rounds)
            log.warning("faults.%d: has no effect: %s begins in round %d, the last round is %d", *late)


def check_stop(experiment: Experiment, task: Task, has_validation: bool) -> None:
    """Refuse a target that cannot be reached, and warn about choosing on test samples."""
    stop, metric = experiment.stop, task.headline
    if stop.target is not None and task.metric_info(metric).percent and not 0 < stop.target <= 1:
        raise SpecError(f"stop.target: {metric} lies between 0 and 1, got {stop.target:g}")
    if stop.patience is not None and not has_validation:
        how = "start nodes with --validation" if experiment.data_at_nodes else "set data.validation, such as 0.1"
        log.warning("stop.patience: chooses the last round by test samples, which flatters the result; %s", how)


def check_per_client(experiment: Experiment, has_held_out: bool) -> None:
    """Refuse an evaluation of single clients without samples of their own, and held-out samples without a use."""
    if experiment.eval.per_client and not has_held_out:
        how = (
            "start nodes with --holdout (and with --share-evaluation, where they have a --roster)"
            if experiment.data_at_nodes
            else "set data.holdout, such as 0.2"
        )
        raise SpecError(f"eval.per_client: no client has held-out samples; {how}")
    if experiment.data.holdout and not experiment.eval.per_client:
        raise SpecError(
            "data.holdout: has no effect without eval.per_client, which evaluates every client on its held-out samples"
        )


def own_task_reference(experiment: Experiment, task: Task | None) -> str | None:
    """`MODULE:NAME` of a task of the user's own: as the experiment names it, or the class of the caller's own task."""
    if task is None:
        name = experiment.task.get("name")
        return name if is_code_reference(name) else None
    kind = type(task)
    return None if is_built_in(kind) else f"{kind.__module__}:{kind.__qualname__}"


def check_nodes_find(references: Mapping[str, str]) -> None:
    """Refuse code that exists only in the user's program: no node can import it, whatever its owner allows.

    Args:
        references: Setting → `MODULE:NAME`.
    """
    for setting, reference in references.items():
        if not is_findable_elsewhere(reference):
            raise SpecError(
                f"{setting}: nodes cannot find {reference}, which is only in your program; define it in a module, at "
                "its top level, and name it MODULE:NAME"
            )


def open_data(
    experiment: Experiment, method: Method, own: Federation | None, task_reference: str | None = None
) -> Federation:
    """The data of an experiment, or the caller's own, with held-out, validation and public samples taken out."""
    if own is None and experiment.data_at_nodes:
        references = {**experiment.train.own_code_references, **({"task": task_reference} if task_reference else {})}
        check_nodes_find(references)
        own = open_node_data(experiment, (*method.node_plugins, *map(module_of_reference, references.values())))
    if own is None:
        return open_federation(experiment.data, experiment.seed, named_task(experiment))
    kept = reserved_shares(own)
    for setting, keep in (("holdout", with_holdout), ("validation", with_validation)):
        share, there = getattr(experiment.data, setting), kept.get(setting)
        if there is not None and there != share:
            raise SpecError(f"data.{setting}: these data already keep {there:g} of the train samples, got {share:g}")
        if there is None and share:
            own = below_public(own, partial(keep, share=share, seed=experiment.seed))
    wanted = experiment.data.public or 0
    if not isinstance(own, FederationWithPublicSamples):
        return with_public(own, wanted, experiment.seed)
    if wanted != own.per_class:
        raise SpecError(
            f"data.public: these data already have a public set of {own.per_class} samples per class, got {wanted}"
        )
    return own


def reserved_shares(federation: Federation) -> dict[str, float]:
    """Setting of `data` → the share of each client's samples that a federation keeps already."""
    found = {
        "holdout": find_wrapper(federation, FederationWithHoldout),
        "validation": find_wrapper(federation, FederationWithValidationSamples),
    }
    return {setting: part.share for setting, part in found.items() if part is not None}


def named_task(experiment: Experiment) -> str | None:
    """The name of the task, if the experiment has one."""
    name = experiment.task.get("name")
    return name if isinstance(name, str) else None


def with_absolute_paths(experiment: Experiment) -> Experiment:
    """The experiment with absolute paths, so that a run can be resumed from any working directory."""
    data, probe, devices = experiment.data, experiment.grouping.get("probe"), experiment.clock.get("path")
    is_file = data.name.lower().endswith((".npz", *TABLE_FILES))
    name = str(expand_home(Path(data.name)).resolve()) if is_file else data.name
    path = expand_home(data.path).resolve() if data.path is not None else None
    test = data.table.test
    table = (
        data.table.model_copy(update={"test": expand_home(test).resolve()}) if isinstance(test, Path) else data.table
    )
    engine = experiment.engine
    places: dict[str, Any] = {}
    if engine.folder is not None:
        places["folder"] = expand_home(engine.folder).resolve()
    if engine.test is not None and not is_code_reference(engine.test):
        places["test"] = str(expand_home(Path(engine.test)).resolve())
    update: dict[str, Any] = {
        "data": data.model_copy(update={"name": name, "path": path, "table": table}),
        "engine": engine.model_copy(update=places),
    }
    if isinstance(probe, str) and probe.lower().endswith(FILES):
        update["grouping"] = {**experiment.grouping, "probe": str(expand_home(Path(probe)).resolve())}
    if isinstance(devices, str):
        update["clock"] = {**experiment.clock, "path": str(expand_home(Path(devices)).resolve())}
    return experiment.model_copy(update=update)


def with_default_model(experiment: Experiment, federation: Federation) -> Experiment:
    """The experiment with the default model written out, so that a run folder does not depend on the default."""
    if experiment.model.name is not None:
        return experiment
    kind, shape = _one_input(federation)
    at_every_position = federation.class_count > 0 and bool(federation.target_shape)
    of_positions = {"tokens": "word-lstm", "image": "unet"}
    if at_every_position and kind not in of_positions:
        raise SpecError(
            f"model: there is none in the zoo with a class at each position of a {kind} (unet takes images); give one "
            f"of your own, model=MyNet or --model MODULE:FUNCTION, that returns [samples, {federation.class_count}, "
            f"{', '.join(map(str, federation.target_shape))}]"
        )
    name = of_positions[kind] if at_every_position else default_model(kind, shape)
    return experiment.model_copy(update={"model": experiment.model.model_copy(update={"name": name})})


def build_module(experiment: Experiment, federation: Federation, outputs: int) -> nn.Module:
    """A new model: one of the zoo, or what the user's own `MODULE:FUNCTION` returns for (sample shape, outputs)."""
    model = experiment.model
    assert model.name is not None
    if is_own_model(experiment):
        if model.hidden is not None or model.stem is not None:
            raise SpecError(f"model.hidden, model.stem: have no effect on a model of your own ({model.name})")
        module = call_function(model.name, federation.sample_shape, outputs)
        if not isinstance(module, nn.Module):
            raise SpecError(f"model.name: {model.name} must return a torch.nn.Module, got {type(module).__name__}")
        return module
    kind, shape = _one_input(federation)
    try:
        return build_model(model.name, shape, outputs, kind=kind, hidden=model.hidden, stem=model.stem)
    except (RuntimeError, MemoryError, OverflowError, TypeError) as error:
        raise SpecError(f"model: cannot be built ({str(error).splitlines()[0]})") from None


def _one_input(federation: Federation) -> tuple[Kind, Shape]:
    """The kind and the shape of samples, for models of the zoo.

    Raises:
        SpecError: Samples have several inputs.
    """
    kind, shape = federation.kind, single_shape(federation.sample_shape)
    if kind == "multi-input" or shape is None:
        raise SpecError(
            f"model: {federation.name!r} has several inputs, which no built-in model takes; use a model of your own"
        )
    return kind, shape


def own_module(source: OwnModel, federation: Federation, outputs: int) -> nn.Module:
    """The caller's own model, or a new one that the caller's own function builds.

    Raises:
        SpecError: The function failed, or returned something else than a module.
    """
    if isinstance(source, nn.Module):
        return source
    arguments: tuple[Any, ...] = (federation.sample_shape, outputs)
    arguments = arguments if accepts(source, *arguments) else ()
    what = f"model: {name_of(source)}({', '.join(map(str, arguments))})"
    module = call_own(source, what, *arguments)
    if not isinstance(module, nn.Module):
        raise SpecError(f"{what}: must return a torch.nn.Module, got {type(module).__name__}")
    return module


def with_own_data(experiment: Experiment, federation: Federation) -> Experiment:
    """The experiment with the name, the number of clients and the kept samples of the user's own data."""
    update: dict[str, Any] = {"name": federation.name, "clients": federation.client_count}
    update |= {name: share for name, share in reserved_shares(federation).items() if not getattr(experiment.data, name)}
    return experiment.model_copy(update={"data": experiment.data.model_copy(update=update)})


def is_own_model(experiment: Experiment) -> bool:
    """Whether the model is a function of the user's own, `MODULE:FUNCTION`."""
    return experiment.model.name is not None and ":" in experiment.model.name


def module_rebuilder(
    experiment: Experiment, federation: Federation, method: Method, outputs: int
) -> ModuleRebuilder | None:
    """How workers and nodes build the same model; None for a model of the user's own, which nodes bring themselves."""
    model = experiment.model
    if model.name is None or is_own_model(experiment):
        return None
    kind, shape = _one_input(federation)
    return ZooModelRebuilder(
        name=model.name,
        shape=shape,
        classes=outputs,
        kind=kind,
        hidden=model.hidden,
        stem=model.stem,
        terms=method.terms,
    )
