"""The brief: what a node needs to know of a job to do its part, as plain data. It goes with every message."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from fedrelay.data.federation import Federation
from fedrelay.errors import EngineError
from fedrelay.experiment.serialize import from_plain, to_plain
from fedrelay.experiment.spec import GuardSettings, TrainSettings, validate
from fedrelay.local.module_builder import ModuleBuilder
from fedrelay.local.terms.base import Term
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.layout import FlatLayout


def describe_job(job: TrainingJob) -> str:
    """A job in words; the server looks at the public set itself, since it sees every model."""
    guard = GuardSettings(on_divergence="skip", largest=job.guard.largest, norm=job.guard.norm)
    brief = {
        "train": {**job.train.model_dump(mode="json"), "device": None},  # where it computes is the node's own affair
        "terms": [to_plain(term) for term in job.terms],
        "seed": job.seed,
        "classes": job.federation.classes,
        "mean_size": float(job.federation.sizes().mean()),
        "guard": guard.model_dump(mode="json"),
        "origin": to_plain(job.origin) if job.origin is not None else None,
        "layout": layout_digest(job.layout),
    }
    return json.dumps(brief, sort_keys=True)


def job_from_description(
    brief: str, federation: Federation, own: nn.Module | None, device: str, largest: int
) -> TrainingJob:
    """The job of a brief at a node that has these samples, and perhaps a module of its own.

    Noise that protects the samples comes from the operating system: nobody can repeat it, so nobody can subtract it.
    A model of more than `largest` bytes is not built.
    """
    said: dict[str, Any] = json.loads(brief)
    if said["origin"] is None and own is None:
        raise EngineError("the model is not one of the zoo: start this node with --model MODULE:FUNCTION")
    module = _built(from_plain(ModuleBuilder, said["origin"]), largest) if said["origin"] is not None else own
    assert module is not None
    layout = FlatLayout.of(module)
    if layout_digest(layout) != said["layout"]:
        raise EngineError("the model built here is not that of the server: is FedRelay here of another version?")
    return TrainingJob(
        module=module,
        layout=layout,
        federation=federation,
        train=validate(TrainSettings, {**said["train"], "device": device}, "train."),
        terms=tuple(from_plain(Term, term) for term in said["terms"]),
        seed=int(said["seed"]),
        guard=validate(GuardSettings, {**said["guard"], "tolerance": None}, "guard."),  # the server has the public set
        secret_noise=True,
    )


def _built(origin: ModuleBuilder, largest: int) -> nn.Module:
    with torch.device("meta"):  # where even the largest model takes no memory
        size = FlatLayout.of(origin.build()).bytes
    if size > largest:
        raise EngineError(f"a model of {size:,} bytes was asked for, this node takes at most {largest:,}")
    return origin.build()


def layout_digest(layout: FlatLayout) -> str:
    """By which two sides see that they mean the same model."""
    plain = replace(layout, aliases=())
    return hashlib.sha256(repr(plain).encode()).hexdigest()[:16]
