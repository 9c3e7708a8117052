"""Parcels: what a message holds, as plain data and arrays, and the checks of whoever opens one.

Models are rows of one array, with their names beside them: a message costs some requests for every array in it. Nothing
in a parcel is ever unpickled or run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.errors import FedRelayError
from fedrelay.local.arrival import HopReport
from fedrelay.local.evaluation import EvaluationSums
from fedrelay.models.layout import FlatLayout

MODELS = "models"
"""The array whose rows are models."""

Array = NDArray[Any]


class BadMessage(FedRelayError):
    """A parcel that is not what was asked for."""


@dataclass(frozen=True)
class Message:
    """The content of a message."""

    header: Mapping[str, Any]
    arrays: Mapping[str, Array] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """What the arrays weigh."""
        return sum(array.nbytes for array in self.arrays.values())


def packed(header: Mapping[str, Any], models: Mapping[str, Tensor]) -> Message:
    """Named models as one array."""
    rows = [model.detach().cpu() for model in models.values()]
    return Message({**header, "names": list(models)}, {MODELS: torch.stack(rows).numpy()})


def unpacked(message: Message, layout: FlatLayout, names: Sequence[str] | None = None) -> dict[str, Tensor]:
    """The models of a parcel, each checked against the layout; with `names`, exactly these."""
    found, array = message.header.get("names"), message.arrays.get(MODELS)
    if array is None or not isinstance(found, list) or len(set(map(str, found))) != len(found):
        raise BadMessage("no models")
    if names is not None and sorted(map(str, found)) != sorted(names):
        raise BadMessage("models of other names")
    if array.shape != (len(found), layout.size):
        raise BadMessage("a wrong shape")
    if array.dtype != _dtype(layout):
        raise BadMessage(f"weights of type {array.dtype}")
    rows = torch.from_numpy(np.array(array))  # a copy: what came over the net may be read-only
    return dict(zip(map(str, found), rows, strict=True))


def travels(layout: FlatLayout) -> bool:
    """Whether weights of this type can be sent as arrays."""
    return layout.dtype in (torch.float16, torch.float32, torch.float64)


def _dtype(layout: FlatLayout) -> Any:
    return torch.empty(0, dtype=layout.dtype).numpy().dtype


def whole(header: Mapping[str, Any], name: str, most: int = 2**62) -> int:
    """A whole number from 0."""
    value = header.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise BadMessage(f"{name} that is no whole number from 0 to {most}")
    return value


def number(header: Mapping[str, Any], name: str) -> float:
    """A finite number."""
    value = header.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadMessage(f"{name} that is no number")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise BadMessage(f"{name} that is no number")
    return found


def text(header: Mapping[str, Any], name: str, most: int = 300) -> str:
    """A short text on one line."""
    return one_line(str(header.get(name, "")), most)


def one_line(words: str, most: int = 300) -> str:
    """Words of others, fit to be shown: no control characters, not too many."""
    return "".join(each if each.isprintable() else " " for each in words)[:most].strip()


def report_of(message: Message, samples: int) -> tuple[HopReport, float]:
    """What a node says of a turn, and the seconds it took; `samples` is what the node said it holds."""
    header = message.header
    refused = text(header, "refused")
    seconds = max(0.0, number(header, "seconds"))
    if refused:
        return HopReport(0, 0, 0.0, refused=refused), seconds
    if whole(header, "samples") != samples:
        raise BadMessage(f"{header['samples']} samples in place of {samples}")
    loss = math.nan if header.get("loss", 0) is None else number(header, "loss")  # its owner may not tell
    report = HopReport(samples, whole(header, "steps", 2**31), loss)
    if header.get("shortened") is True:
        report = replace(report, length=max(0.0, number(header, "length")), shortened=True)
    return report, seconds


def verdict_header(verdict: EvaluationSums) -> dict[str, Any]:
    """A verdict as plain data."""
    counts = {name: getattr(verdict, name).tolist() for name in ("correct", "predicted", "actual")}
    return {"loss": verdict.loss if math.isfinite(verdict.loss) else None, **counts}


def verdict_of(message: Message, classes: int, possible: range) -> EvaluationSums:
    """The way back, checked; `possible` is how many predictions it may be about."""
    header = message.header
    counts = []
    for name in ("correct", "predicted", "actual"):
        values = header.get(name)
        if not isinstance(values, list) or len(values) != classes:
            raise BadMessage(f"{name} that does not count {classes} classes")
        counts.append(np.array([whole({name: value}, name) for value in values], dtype=np.int64))
    correct, predicted, actual = counts
    if (correct > predicted).any() or (correct > actual).any() or predicted.sum() != actual.sum():
        raise BadMessage("counts that cannot be")
    if int(actual.sum()) not in possible:
        raise BadMessage(f"a verdict on {actual.sum()} samples in place of {possible[-1]}")
    loss = math.inf if header.get("loss") is None else number(header, "loss")
    if loss < 0:
        raise BadMessage("a loss below zero")
    return EvaluationSums(loss, correct, predicted, actual)


def nothing_judged(classes: int) -> EvaluationSums:
    """The verdict on no samples."""
    return EvaluationSums(0.0, *(np.zeros(classes, dtype=np.int64) for _ in range(3)))


def vector_of(message: Message, most: int) -> NDArray[np.floating[Any]]:
    """The vector by which a client described itself, checked."""
    vector = message.arrays.get("vector")
    if vector is None or vector.ndim != 1 or not 0 < len(vector) <= most or vector.dtype.kind != "f":
        raise BadMessage("no vector")
    if not np.isfinite(vector).all():
        raise BadMessage("a vector that is not finite")
    return vector
