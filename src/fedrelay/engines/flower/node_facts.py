"""What a node tells the server when it registers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedrelay.data.evaluation_samples import EvaluationSet
from fedrelay.data.federation import SampleKind
from fedrelay.data.node_samples import MAX_CLASSES
from fedrelay.data.noisy_counts import MIN_EPSILON
from fedrelay.data.table_encoding import NumberSums, TableStatistics
from fedrelay.engines.flower.sealing_certificate import SealingCertificate
from fedrelay.experiment.spec import Section
from fedrelay.models.nested_inputs import Inputs

MOST_COLUMNS = 100_000
"""Columns that a node's table may have."""

SampleShape = Annotated[tuple[Annotated[int, Field(ge=1, le=10**6)], ...], Field(max_length=4)]
"""The shape of a tensor of one sample."""

ROUNDING = 1e-9
"""Relative error that sums of floating-point numbers may have."""

LARGEST_WITHOUT_SQUARE = 1e-150
"""The squares of smaller numbers may be rounded to 0."""


class TableFacts(Section):
    """What a node shares of its table, so that all nodes encode their rows in the same way."""

    target: str = Field(max_length=1000)
    labels: tuple[Annotated[str, Field(max_length=1000)], ...] = Field((), max_length=MAX_CLASSES)
    """The labels that the node has; none where targets are numbers."""

    task: Literal["classification", "binary", "regression"] | None = None
    """What the owner says the target is for; by default it follows from the labels of all nodes."""

    statistics: TableStatistics
    """Sums over the rows that the node trains on."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        sums = self.statistics
        values = [value for each in sums.numbers.values() for value in (each.total, each.squares)]
        known = [each.known for each in sums.numbers.values()] + [each.total() for each in sums.categories.values()]
        counts = [count for each in sums.categories.values() for count in each.values()]
        if not all(0 <= count <= sums.rows <= 10**12 for count in (*known, *counts)):
            raise ValueError("a column has more values than the table has rows")
        if not all(map(math.isfinite, values)) or not all(map(_possible_sums, sums.numbers.values())):
            raise ValueError("a sum is impossible")
        if len(known) > MOST_COLUMNS or len(counts) > MAX_CLASSES:
            raise ValueError("the table has too many columns or categories")
        return self


def _possible_sums(sums: NumberSums) -> bool:
    """Whether numbers with these sums exist: the square of their mean is at most the mean of their squares."""
    if sums.squares < 0 or (not sums.known and sums.squares):
        return False
    bound = math.sqrt(sums.known) * math.sqrt(sums.squares)
    return abs(sums.total) <= bound * (1 + ROUNDING) + sums.known * LARGEST_WITHOUT_SQUARE


class InputFacts(Section):
    """One of several inputs of a sample."""

    name: str | None = Field(max_length=1000)
    """None where the model takes inputs in order."""

    shape: SampleShape
    dtype: Literal["float32", "int64", "bool"]


def describe_inputs(inputs: Inputs) -> tuple[InputFacts, ...]:
    """Several inputs without their values; none for one tensor."""
    if isinstance(inputs, Tensor):
        return ()
    named = inputs.items() if isinstance(inputs, dict) else ((None, each) for each in inputs)
    return tuple(
        InputFacts.model_validate({"name": name, "shape": tuple(each.shape[1:]), "dtype": str(each.dtype)[6:]})
        for name, each in named
    )


class NodeFacts(Section):
    """A node's samples in numbers, its software, and what its owner demands."""

    samples: int = Field(ge=0, le=10**12)
    tests: int = Field(ge=0, le=10**12)
    """Held-out samples for evaluation."""

    validations: int = Field(0, ge=0, le=10**12)
    """Samples that are kept for choosing a model."""

    classes: int = Field(ge=0, le=MAX_CLASSES)
    """0 where targets are numbers."""

    shape: SampleShape
    """The shape of one sample; () where it has several inputs."""

    kind: SampleKind
    inputs: tuple[InputFacts, ...] = Field((), max_length=1000)
    """The inputs of one sample, where it has several."""

    target_shape: tuple[Annotated[int, Field(ge=1, le=10**6)], ...] = Field((), max_length=3)
    """The shape of one target: () for one label or number per sample."""

    task: str = Field("classification", max_length=200)
    """What the data are for."""

    fingerprint: str = Field(max_length=128)
    histogram: tuple[Annotated[int, Field(ge=0, le=10**12)], ...] | None = None
    """Labels of every class; only if the owner shares it."""

    histogram_epsilon: float | None = Field(None, ge=MIN_EPSILON)
    """The privacy of the histogram, if it has noise."""

    table: TableFacts | None = None
    """What is shared of a table; None where samples are arrays."""

    version: str = Field("", max_length=64)
    """The version of FedRelay."""

    plugins: tuple[Annotated[str, Field(max_length=200)], ...] = Field((), max_length=100)
    """The plug-in modules that the owner allows."""

    least_noise: float | None = Field(None, gt=0)
    """The owner demands differential privacy with at least this noise."""

    sealing: SealingCertificate | None = None
    """The key that models for this node are sealed with; only if its owner has pinned a roster."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.histogram is not None and len(self.histogram) != self.classes:
            raise ValueError("the histogram has another number of classes")
        if self.histogram_epsilon is not None:
            if self.histogram is None or self.target_shape:
                raise ValueError("noise needs a histogram of one label a sample")
            if max(self.histogram, default=0) > self.samples:
                raise ValueError("the histogram has more samples of a class than there are samples")
        elif self.histogram and not self.target_shape and sum(self.histogram) != self.samples:
            raise ValueError("the histogram has another number of samples")
        if self.table is not None and self.table.statistics.rows != self.samples + self.validations:
            # Without this, sums over more rows than were agreed would set the scaling of all nodes.
            raise ValueError("the sums of the table are over another number of rows than it trains on and validates")
        names = [each.name for each in self.inputs]
        if bool(names) != (self.kind == "multi-input") or (names and self.shape):
            raise ValueError("samples have one input or several, not both")
        if set(names) != {None} and (None in names or len(set(names)) != len(names)):
            raise ValueError("all inputs need different names, or none has a name")
        return self

    def empty_inputs(self) -> Inputs:
        """The inputs of a batch without samples: their shapes and types."""
        if not self.inputs:
            return torch.zeros(0, *self.shape, dtype=torch.int64 if self.kind == "tokens" else torch.float32)
        tensors = [torch.zeros(0, *each.shape, dtype=getattr(torch, each.dtype)) for each in self.inputs]
        named = {each.name: tensor for each, tensor in zip(self.inputs, tensors, strict=True) if each.name is not None}
        return named or tuple(tensors)

    def reserved_samples(self, on: EvaluationSet) -> int:
        """The number of samples that the node evaluates models on."""
        return self.tests if on == "test" else self.validations

    def predictions(self, on: EvaluationSet) -> range:
        """How many predictions an evaluation may count; with several targets per sample some may be padding."""
        samples = self.reserved_samples(on)
        if self.target_shape:
            return range(1, samples * math.prod(self.target_shape) + 1)
        return range(samples, samples + 1)


def parse_facts(header: Mapping[str, Any]) -> NodeFacts:
    """Facts from the header of a message. Raises ValidationError where they are impossible."""
    return NodeFacts.model_validate_json(
        json.dumps({name: header[name] for name in NodeFacts.model_fields if name in header})
    )
