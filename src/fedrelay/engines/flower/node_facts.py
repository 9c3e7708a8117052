"""What a node tells the server when it registers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fedrelay.data.evaluation_samples import EvaluationSet
from fedrelay.data.federation import Kind
from fedrelay.data.node_samples import MAX_CLASSES
from fedrelay.experiment.spec import Section


class NodeFacts(Section):
    """A node's samples in numbers, its software, and what its owner demands."""

    samples: int = Field(ge=0, le=10**12)
    tests: int = Field(ge=0, le=10**12)
    """Held-out samples for evaluation."""

    validations: int = Field(0, ge=0, le=10**12)
    """Samples that are kept for choosing a model."""

    classes: int = Field(ge=0, le=MAX_CLASSES)
    """0 where targets are numbers."""

    shape: tuple[Annotated[int, Field(ge=1, le=10**6)], ...] = Field(max_length=4)
    kind: Kind
    target_shape: tuple[Annotated[int, Field(ge=1, le=10**6)], ...] = Field((), max_length=3)
    """The shape of one target: () for one label or number per sample."""

    task: str = Field("classification", max_length=200)
    """What the data are for."""

    fingerprint: str = Field(max_length=128)
    histogram: tuple[Annotated[int, Field(ge=0, le=10**12)], ...] | None = None
    """Labels of every class; only if the owner shares it."""

    version: str = Field("", max_length=64)
    """The version of FedRelay."""

    plugins: tuple[Annotated[str, Field(max_length=200)], ...] = Field((), max_length=100)
    """The plug-in modules that the owner allows."""

    least_noise: float | None = Field(None, gt=0)
    """The owner demands differential privacy with at least this noise."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.histogram is not None and len(self.histogram) != self.classes:
            raise ValueError("the histogram has another number of classes")
        if self.histogram is not None and not self.target_shape and sum(self.histogram) != self.samples:
            raise ValueError("the histogram has another number of samples")
        return self

    def kept_samples(self, on: EvaluationSet) -> int:
        """The number of samples that the node evaluates models on."""
        return self.tests if on == "test" else self.validations

    def predictions(self, on: EvaluationSet) -> range:
        """How many predictions an evaluation may count; with several targets per sample some may be padding."""
        samples = self.kept_samples(on)
        if self.target_shape:
            return range(1, samples * math.prod(self.target_shape) + 1)
        return range(samples, samples + 1)


def parse_facts(header: Mapping[str, Any]) -> NodeFacts:
    """Facts from the header of a message. Raises ValidationError where they are impossible."""
    return NodeFacts.model_validate_json(
        json.dumps({name: header[name] for name in NodeFacts.model_fields if name in header})
    )
