"""Messages between server and nodes: plain data and arrays, and the checks on reading one.

Models are rows of one array, with their names in the header, because every array in a message costs several calls.
Nothing in a message is ever unpickled or executed.
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
from fedrelay.local.evaluation import EvaluationSums
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.routes.arrival import HopReport

MODELS = "models"
"""The array whose rows are models."""

Array = NDArray[Any]
Header = Mapping[str, Any]


class BadMessage(FedRelayError):
    """A message has missing, unknown or impossible content."""


@dataclass(frozen=True)
class Message:
    """A request or a reply."""

    header: Header
    arrays: Mapping[str, Array] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())


def pack_models(header: Header, models: Mapping[str, Tensor]) -> Message:
    """A message with named models."""
    rows = [model.detach().cpu() for model in models.values()]
    return Message({**header, "names": list(models)}, {MODELS: torch.stack(rows).numpy()})


def unpack_models(message: Message, layout: FlatLayout, names: Sequence[str] | None = None) -> dict[str, Tensor]:
    """The models of a message, each checked against the layout; with `names`, exactly these."""
    found, array = message.header.get("names"), message.arrays.get(MODELS)
    if array is None or not isinstance(found, list) or len(set(map(str, found))) != len(found):
        raise BadMessage("it has no models")
    if names is not None and sorted(map(str, found)) != sorted(names):
        raise BadMessage("its models have other names")
    if array.shape != (len(found), layout.size):
        raise BadMessage("its models have a wrong shape")
    if array.dtype != torch.empty(0, dtype=layout.dtype).numpy().dtype:
        raise BadMessage(f"its models have type {array.dtype}")
    rows = torch.from_numpy(np.array(array))  # a copy: arrays from the network may be read-only
    return dict(zip(map(str, found), rows, strict=True))


def can_send(layout: FlatLayout) -> bool:
    """Whether weights of this type can be sent as arrays."""
    return layout.dtype in (torch.float16, torch.float32, torch.float64)


def int_field(header: Header, name: str, most: int = 2**62) -> int:
    """A whole number from 0 to `most`."""
    value = header.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise BadMessage(f"{name} must be a whole number from 0 to {most}")
    return value


def float_field(header: Header, name: str) -> float:
    """A finite number."""
    value = header.get(name)
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except OverflowError:
        pass
    raise BadMessage(f"{name} must be a finite number")


def text_field(header: Header, name: str) -> str:
    """A short text on one line."""
    return one_line(str(header.get(name, "")))


def one_line(text: str, most: int = 300) -> str:
    """Text from others, safe to print: no control characters, not too long."""
    return "".join(each if each.isprintable() else " " for each in text)[:most].strip()


def hop_report(reply: Message, samples: int) -> tuple[HopReport, float]:
    """What a node reports of a hop, and the seconds it took; `samples` is what the node said it holds."""
    header = reply.header
    refused = text_field(header, "refused")
    seconds = max(0.0, float_field(header, "seconds"))
    if refused:
        return HopReport(0, 0, 0.0, refused=refused), seconds
    if int_field(header, "samples") != samples:
        raise BadMessage(f"it reports {header['samples']} samples instead of {samples}")
    loss = math.nan if header.get("loss", 0) is None else float_field(header, "loss")  # the owner may withhold it
    report = HopReport(samples, int_field(header, "steps", 2**31), loss)
    if header.get("shortened") is True:
        report = replace(report, update_norm=max(0.0, float_field(header, "length")), update_clipped=True)
    return report, seconds


def evaluation_header(sums: EvaluationSums) -> dict[str, Any]:
    """An evaluation as plain data."""
    counts = {name: getattr(sums, name).tolist() for name in ("correct", "predicted", "actual")}
    return {"loss": sums.loss if math.isfinite(sums.loss) else None, **counts}


def evaluation_from(reply: Message, classes: int, possible: range) -> EvaluationSums:
    """The evaluation in a reply, checked; `possible` is how many predictions it may count."""
    header = reply.header
    counts = []
    for name in ("correct", "predicted", "actual"):
        values = header.get(name)
        if not isinstance(values, list) or len(values) != classes:
            raise BadMessage(f"{name} must have a count for each of {classes} classes")
        counts.append(np.array([int_field({name: value}, name) for value in values], dtype=np.int64))
    correct, predicted, actual = counts
    if (correct > predicted).any() or (correct > actual).any() or predicted.sum() != actual.sum():
        raise BadMessage("its counts contradict each other")
    if int(actual.sum()) not in possible:
        raise BadMessage(f"it evaluates {actual.sum()} predictions instead of {possible[-1]}")
    loss = math.inf if header.get("loss") is None else float_field(header, "loss")
    if loss < 0:
        raise BadMessage("its loss is negative")
    return EvaluationSums(loss, correct, predicted, actual)


def profile_vector(reply: Message, most: int) -> NDArray[np.floating[Any]]:
    """The profile in a reply, checked."""
    vector = reply.arrays.get("vector")
    if vector is None or vector.ndim != 1 or not 0 < len(vector) <= most or vector.dtype.kind != "f":
        raise BadMessage("it has no profile vector")
    if not np.isfinite(vector).all():
        raise BadMessage("its profile vector is not finite")
    return vector
