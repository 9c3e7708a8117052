"""A training job as plain data: what a node needs to know to do its part. It goes with every request."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import nn

from fedrelay.data.federation import Federation
from fedrelay.data.table_encoding import TableEncoding
from fedrelay.data.table_federation import SharedEncoding, shared_encoding
from fedrelay.engines.flower.messages import FROZEN
from fedrelay.errors import EngineError, SpecError
from fedrelay.experiment.part_serialization import from_plain, to_plain
from fedrelay.experiment.spec import GuardSettings, TrainSettings, TransferSettings, validate
from fedrelay.local.model_checks import check_precision
from fedrelay.local.module_rebuilder import ModuleRebuilder
from fedrelay.local.terms.base import Term
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.models.frozen_parameter_serialization import Bytes, frozen_bytes, frozen_sha256, load_frozen_bytes
from fedrelay.tasks.base import Task
from fedrelay.tasks.custom import CustomTask
from fedrelay.tasks.registry import build_task
from fedrelay.user_code import is_built_in, is_code_reference, is_findable_elsewhere, module_of_reference


def describe_job(job: TrainingJob) -> str:
    """A job as JSON. The check on public samples stays at the server, which sees every model."""
    guard = GuardSettings(on_divergence="skip", largest=job.guard.largest, norm=job.guard.norm)
    description = {
        "train": {**job.train.model_dump(mode="json"), "device": None},  # each node chooses its own device
        "terms": [to_plain(term) for term in job.terms],
        "task": describe_task(job),
        "transfer": job.transfer.model_dump(mode="json"),
        "seed": job.seed,
        "rounds": job.rounds,
        "classes": job.federation.class_count,
        "mean_size": float(job.federation.sample_counts().mean()),
        "guard": guard.model_dump(mode="json", exclude={"largest_share"}),  # nodes do not merge
        "model": to_plain(job.module_rebuilder) if job.module_rebuilder is not None else None,
        "layout": layout_digest(job.layout),
        "table": _plain_encoding(job.federation),
        FROZEN: frozen_sha256(frozen_bytes(job.module)) if job.layout.frozen else None,
    }
    return json.dumps(description, sort_keys=True)


def job_from_description(
    description: str,
    federation: Federation,
    own: nn.Module | None,
    device: str,
    largest: int,
    frozen_of: Callable[[str], Bytes],
    plugins: Collection[str] = (),
) -> TrainingJob:
    """The job at a node.

    Args:
        description: What `describe_job` made.
        federation: The node's samples.
        own: A module that the node's owner provides.
        device: Where the node trains.
        largest: Bytes that a model may have.
        frozen_of: The frozen parameters with this SHA-256, as the server has sent them.
        plugins: Modules that the node's owner allows.

    Noise that protects the samples comes from the operating system: nobody can repeat it, so nobody can subtract it.
    """
    fields: dict[str, Any] = json.loads(description)
    if fields["model"] is None and own is None:
        raise EngineError("the model is not in the zoo: start this node with --model MODULE:FUNCTION")
    module = _build(from_plain(ModuleRebuilder, fields["model"]), largest) if fields["model"] is not None else own
    assert module is not None
    layout = FlatLayout.of(module)
    if layout_digest(layout) != fields["layout"]:
        raise EngineError("this node builds another model than the server: do both run the same version of FedRelay?")
    if layout.frozen:
        frozen, module = frozen_of(str(fields[FROZEN])), copy.deepcopy(module)  # the owner's module stays as it is
        load_frozen_bytes(module, frozen)
    train = validate(TrainSettings, {**fields["train"], "device": device}, "train.")
    check_precision(train.precision, device, layout.dtype)
    for setting, reference in train.own_code_references.items():
        check_allowed(setting, reference, plugins)
    return TrainingJob(
        module=module,
        layout=layout,
        federation=federation,
        train=train,
        terms=tuple(from_plain(Term, term) for term in fields["terms"]),
        transfer=validate(TransferSettings, fields["transfer"], "transfer."),
        seed=int(fields["seed"]),
        rounds=int(fields["rounds"]),
        task=_task(fields["task"], plugins),
        guard=validate(GuardSettings, {**fields["guard"], "tolerance": None}, "guard."),
        secret_noise=True,
    )


def describe_task(job: TrainingJob) -> dict[str, Any]:
    """A task as plain data. One of the user's own is named `MODULE:NAME`; nodes have the module.

    Raises:
        SpecError: It has no name that nodes could find it by.
    """
    task, reference = job.task, job.task_reference
    by_name = isinstance(task, CustomTask)  # its functions cannot be sent
    if is_built_in(type(task)) and not by_name:
        return to_plain(task)
    if not is_findable_elsewhere(reference):
        raise SpecError(
            "task: nodes cannot find a task that is only in your program; define it in a module, and name it: "
            "task: MODULE:NAME"
        )
    if by_name:
        return {"is": reference}
    kind = type(task)  # a class of the user's own, which may have filled in its fields
    return {"is": f"{kind.__module__}:{kind.__qualname__}", **task.model_dump(mode="json")}


def _task(plain: Mapping[str, Any], plugins: Collection[str]) -> Task:
    """The task at a node."""
    reference = str(plain["is"])
    if not is_code_reference(reference):
        return from_plain(Task, plain)
    check_allowed("task", reference, plugins)
    return build_task({**{key: value for key, value in plain.items() if key != "is"}, "name": reference}, reference)


def check_allowed(setting: str, reference: str, plugins: Collection[str]) -> None:
    """Raise an EngineError unless the node's owner allows the module of `MODULE:NAME`."""
    module = module_of_reference(reference)
    if module not in plugins:
        allowed = ", ".join(plugins) or "none"
        raise EngineError(
            f"{setting}: {reference} is not allowed here: start this node with --plugin {module} (it allows {allowed})"
        )


def encoding_from_plain(plain: Any) -> SharedEncoding:
    """How rows are encoded, as a job describes it. Raises ValueError, TypeError or KeyError where it is impossible."""
    encoding = TypeAdapter(TableEncoding).validate_python(
        {"numbers": dict(plain["numbers"]), "categories": dict(plain["categories"])}
    )
    labels = TypeAdapter(tuple[str, ...]).validate_python(plain["labels"])
    return SharedEncoding(encoding, labels, (), scaled_per_client=plain["scaled_per_client"] is True)


def _plain_encoding(federation: Federation) -> dict[str, Any] | None:
    """How all nodes encode the rows of their tables, in the order of columns; None where samples are arrays."""
    shared = shared_encoding(federation)
    if shared is None:
        return None
    return {
        "numbers": [(name, asdict(each)) for name, each in shared.encoding.numbers.items()],
        "categories": [(name, asdict(each)) for name, each in shared.encoding.categories.items()],
        "labels": shared.labels,
        "scaled_per_client": shared.scaled_per_client,
    }


def layout_digest(layout: FlatLayout) -> str:
    """A digest by which server and node see that they mean the same model."""
    plain = replace(layout, aliases=())
    return hashlib.sha256(repr(plain).encode()).hexdigest()[:16]


def _build(builder: ModuleRebuilder, largest: int) -> nn.Module:
    with torch.device("meta"):  # a model there takes no memory
        layout = FlatLayout.of(builder.build())
        size = layout.bytes + layout.frozen_bytes
    if size > largest:
        raise EngineError(f"the model has {size:,} bytes, this node accepts at most {largest:,}")
    return builder.build()
