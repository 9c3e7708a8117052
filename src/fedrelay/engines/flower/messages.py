"""Messages between server and nodes: plain data and arrays, and the checks on reading one.

Models are rows of one array, with their names in the header, because every array in a message costs several calls.
Nothing in a message is ever unpickled or executed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.engines.flower.printable_text import one_line
from fedrelay.errors import FedRelayError
from fedrelay.local.terms.tensor_declarations import Payload, ServerState
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.routes.arrival import HopReport
from fedrelay.tasks.base import EvaluationSums, Summable, Task
from fedrelay.tasks.score_histogram import ScoreHistogram
from fedrelay.transfer.base import DamagedEncoding
from fedrelay.transfer.model_codec import ModelCodec

SCALARS = "scalars"
"""The field of the header with tensors of one number, by name."""

MODELS = "models"
"""The array whose rows are models."""

ENCODED = "encoded"
"""The array whose rows are encoded models, and the field with their names."""

FROZEN = "frozen"
"""The field with the SHA-256 of the model's frozen parameters, and the array that holds them."""

SEALED, ENVELOPE = "sealed", "envelope"
"""The field of a request with the place of a sealed hop on its route, and the array with a sealed model."""

FAILED = "failed"
"""The kind of a reply that says why there is no other."""

NONCE = "nonce"
"""The field of a request with random text: no two requests are equal, and each signed reply belongs to one."""

RECEIVER, EXPIRES = "receiver_sha256", "expires"
"""The fields of a signed request with the digest of the receiver's key, and with the time after which it is void."""

CERTIFICATE, SIGNATURE = "certificate", "signature"
"""The fields of a signed message with the certificate of the sender's key, and with the signature."""

AUDIT = "audit"
"""The field of a request with what the audit trail knows of the node, and of a reply with what the node states for it;
also the array of a reply with entries that the server has not received before."""

DELIVERY_FIELDS = frozenset({NONCE, RECEIVER, EXPIRES, CERTIFICATE, SIGNATURE, AUDIT})
"""Fields of a request that say nothing about what is asked."""

MOST_SUMS = 2**31
"""Numbers that an evaluation may have."""

DEEPEST = 50
"""Lists and mappings inside each other that a header may have; far fewer than Python's own limit."""

Array = NDArray[Any]
Header = Mapping[str, Any]


class BadMessage(FedRelayError):
    """A message has missing, unknown or impossible content."""


class WrongSignature(FedRelayError):
    """A reply is not the node's own, or belongs to another request. The text starts with what it is."""


@dataclass(frozen=True)
class Message:
    """A request or a reply."""

    header: Header
    arrays: Mapping[str, Array] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())


@dataclass(frozen=True)
class ModelEncoding:
    """Which models of a message are encoded, and how."""

    codec: ModelCodec
    names: Collection[str]
    reference: Tensor
    """The model that the sender received."""

    @classmethod
    def of_request(cls, codec: ModelCodec | None) -> ModelEncoding | None:
        """The models that the server sends; None where they are sent as they are."""
        if codec is None or not codec.from_server:
            return None
        return cls(codec, ("recv", "round"), torch.zeros(codec.layout.size))

    @classmethod
    def of_handover(cls, codec: ModelCodec | None) -> ModelEncoding | None:
        """The model that a client seals for the next one; None where it is sent as it is."""
        return None if codec is None else cls(codec, ("model",), torch.zeros(codec.layout.size))

    @classmethod
    def of_reply(cls, codec: ModelCodec | None, received: Tensor) -> ModelEncoding | None:
        """The model that a client sends."""
        return None if codec is None else cls(codec, ("model",), received)


def pack_models(
    header: Header,
    models: Mapping[str, Tensor],
    scalars: Collection[str] = (),
    encoding: ModelEncoding | None = None,
) -> Message:
    """A message with named models, and tensors of one number under the names in `scalars`.

    Models that are encoded have been decoded before, or are what a codec rounds to, so that nothing is lost.
    """
    encoded = [] if encoding is None else [name for name in models if name in encoding.names]
    rows = {name: model.detach().cpu() for name, model in models.items() if name not in (*scalars, *encoded)}
    numbers = {name: float(tensor) for name, tensor in models.items() if name in scalars}
    fields = {**header, "names": list(rows), **({SCALARS: numbers} if numbers else {})}
    arrays: dict[str, Array] = {MODELS: torch.stack(list(rows.values())).numpy()} if rows else {}
    if encoding is not None and encoded:
        fields[ENCODED] = encoded
        arrays[ENCODED] = np.stack([encoding.codec.encode(models[name], encoding.reference) for name in encoded])
    return Message(fields, arrays)


def unpack_models(
    message: Message,
    layout: FlatLayout,
    names: Sequence[str] | None = None,
    scalars: Collection[str] = (),
    encoding: ModelEncoding | None = None,
) -> dict[str, Tensor]:
    """The models of a message, each checked against the layout, and its numbers; with `names`, exactly these."""
    if encoding is not None:
        decoded = _decoded(message, encoding)
        others = None if names is None else [name for name in names if name not in decoded]
        return decoded | unpack_models(message, layout, others, scalars)
    found, array = message.header.get("names"), message.arrays.get(MODELS)
    numbers = message.header.get(SCALARS, {})
    if array is None and found == []:
        array = torch.empty(0, layout.size, dtype=layout.dtype).numpy()
    if array is None or not isinstance(found, list) or len(set(map(str, found))) != len(found):
        raise BadMessage("it has no models")
    if not isinstance(numbers, Mapping) or set(numbers) - set(scalars) or set(map(str, found)) & set(scalars):
        raise BadMessage("models and numbers are mixed up")
    if names is not None and sorted([*map(str, found), *numbers]) != sorted(names):
        raise BadMessage("its models have other names")
    if array.shape != (len(found), layout.size):
        raise BadMessage("its models have a wrong shape")
    if array.dtype != torch.empty(0, dtype=layout.dtype).numpy().dtype:
        raise BadMessage(f"its models have type {array.dtype}")
    rows = torch.from_numpy(np.array(array))  # a copy: arrays from the network may be read-only
    single = {name: torch.tensor([float_field(numbers, name)], dtype=layout.dtype) for name in numbers}
    return {**dict(zip(map(str, found), rows, strict=True)), **single}


def _decoded(message: Message, encoding: ModelEncoding) -> dict[str, Tensor]:
    """The encoded models of a message."""
    found, array = message.header.get(ENCODED, []), message.arrays.get(ENCODED)
    if found == []:
        return {}
    if array is None or not isinstance(found, list) or len(set(map(str, found))) != len(found):
        raise BadMessage("it has no encoded models")
    if set(map(str, found)) - set(encoding.names):
        raise BadMessage("its encoded models have other names")
    if array.ndim != 2 or len(array) != len(found) or array.dtype != np.uint8:
        raise BadMessage("its encoded models have a wrong shape or type")
    try:
        rows = [encoding.codec.decode(row, encoding.reference) for row in array]
    except DamagedEncoding as error:
        raise BadMessage(str(error)) from None
    return dict(zip(map(str, found), rows, strict=True))


def scalar_names(job: TrainingJob) -> set[str]:
    """What a message with a hop calls the server states and payloads that are one number."""
    tensors = [tensor for term in job.terms for tensor in term.tensors if tensor.scalar]
    server = {f"server {tensor.name}" for tensor in tensors if isinstance(tensor, ServerState)}
    return server | {f"payload {tensor.name}" for tensor in tensors if isinstance(tensor, Payload)}


def can_send(layout: FlatLayout) -> bool:
    """Whether weights of this type can be sent as arrays."""
    return layout.dtype in (torch.float16, torch.float32, torch.float64)


def header_from_json(text: str) -> dict[str, Any]:
    """The header of a message from others.

    Raises:
        BadMessage: It is not a mapping in JSON, or is nested too deeply.
    """
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise BadMessage("its header cannot be read") from None
    if not isinstance(header, dict):
        raise BadMessage("its header is not a mapping")
    level: list[Any] = [header]
    for _ in range(DEEPEST):
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [value for values in inner for value in values]
    if level:
        raise BadMessage(f"its header is nested more than {DEEPEST} deep")
    return header


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


CLOCK_SLACK = 60.0
"""Seconds by which a node's clock may disagree with the server's, for example because one machine was suspended."""


def hop_report(reply: Message, samples: int, steps: int, took: float) -> tuple[HopReport, float]:
    """What a node reports of a hop, and the seconds it took.

    Args:
        reply: The message.
        samples: How many samples the node said it holds.
        steps: How many steps a hop on them has.
        took: Seconds between request and reply.
    """
    header = reply.header
    refused = text_field(header, "refused")
    seconds = float_field(header, "seconds")
    if not 0 <= seconds <= took + CLOCK_SLACK:
        raise BadMessage(f"it reports {seconds:g} s of work, {took:.1f} s after the request")
    if refused:
        return HopReport(0, 0, 0.0, refused=refused), seconds
    for name, wanted in (("samples", samples), ("steps", steps)):
        if int_field(header, name) != wanted:
            raise BadMessage(f"it reports {header[name]} {name} instead of {wanted}")
    loss = math.nan if header.get("loss", 0) is None else float_field(header, "loss")  # the owner may withhold it
    report = HopReport(samples, steps, loss)
    if header.get("shortened") is True:
        report = replace(report, update_norm=max(0.0, float_field(header, "length")), update_clipped=True)
    return report, seconds


SUMS = "sums"
"""The array that holds all sums of an evaluation, one after another."""

FINE_TUNED = "fine_tuned"
"""The same of a second evaluation, after fine-tuning."""

FINE_TUNE = "fine_tune"
"""Steps of fine-tuning before the second evaluation."""


def evaluation_message(sums: EvaluationSums) -> Message:
    """An evaluation as a message: all sums in one array, with their shapes in the header."""
    parts = [part for value in sums.values.values() for part in _arrays(value)]
    header = {
        "kind": "evaluate",
        "loss": sums.loss if math.isfinite(sums.loss) else None,
        "weight": sums.weight,
        "non_finite": sums.non_finite,
        "shapes": [list(part.shape) for part in parts],
    }
    flat = [np.asarray(part, np.float64).ravel() for part in parts]
    return Message(header, {SUMS: np.concatenate([*flat, np.zeros(0)])})


def evaluation_and_fine_tuned_message(sums: EvaluationSums, fine_tuned: EvaluationSums) -> Message:
    """The evaluations of a model before and after fine-tuning as one message."""
    before, after = evaluation_message(sums), evaluation_message(fine_tuned)
    return Message({**before.header, FINE_TUNED: after.header}, {**before.arrays, FINE_TUNED: after.arrays[SUMS]})


def fine_tuned_part(reply: Message) -> Message:
    """The evaluation after fine-tuning in a reply, as a message of its own; it is not checked yet."""
    header, array = reply.header.get(FINE_TUNED), reply.arrays.get(FINE_TUNED)
    if not isinstance(header, Mapping) or array is None:
        raise BadMessage("it has no evaluation after fine-tuning")
    return Message(dict(header), {SUMS: array})


def evaluation_from(reply: Message, task: Task, example: EvaluationSums, predictions: range) -> EvaluationSums:
    """The evaluation in a reply, checked.

    Args:
        reply: The message.
        task: The task that was evaluated.
        example: The evaluation of some other samples, which has the same names and shapes.
        predictions: How many predictions the reply may count.
    """
    shapes, array = reply.header.get("shapes"), reply.arrays.get(SUMS)
    if array is None or array.dtype != np.float64 or array.ndim != 1 or not np.isfinite(array).all():
        raise BadMessage("its evaluation has no sums")
    if not isinstance(shapes, list) or not all(isinstance(shape, list) for shape in shapes):
        raise BadMessage("its evaluation has no shapes")
    parts = _split(array, [tuple(int_field({"shape": n}, "shape", MOST_SUMS) for n in shape) for shape in shapes])
    values: dict[str, Summable] = {}
    for name, value in example.values.items():
        wanted = _arrays(value)
        found, parts = parts[: len(wanted)], parts[len(wanted) :]
        values[name] = _checked_sum(name, value, found)
    if parts:
        raise BadMessage("its evaluation has unknown sums")
    loss = math.inf if reply.header.get("loss") is None else float_field(reply.header, "loss")
    non_finite = int_field({"non_finite": 0, **reply.header}, "non_finite")  # nodes of earlier versions do not say
    if non_finite and math.isfinite(loss):
        raise BadMessage("it has a finite loss of outputs that are not")
    sums = EvaluationSums(loss, float_field(reply.header, "weight"), values, non_finite)
    if reason := task.why_sums_implausible(sums, predictions):
        raise BadMessage(reason)
    return sums


def _arrays(value: Summable) -> list[Array]:
    if isinstance(value, ScoreHistogram):
        return [value.bins, value.counts, np.array([value.dropped_bits])]
    return [value]


def _split(array: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    sizes = [math.prod(shape) for shape in shapes]
    if sum(sizes) != len(array):
        raise BadMessage("its sums have a wrong length")
    ends = np.cumsum([0, *sizes])
    return [array[ends[k] : ends[k + 1]].reshape(shape) for k, shape in enumerate(shapes)]


def _checked_sum(name: str, example: Summable, found: Sequence[Array]) -> Summable:
    """A sum of the same type and shape as the example; counts must be whole numbers from 0."""
    whole = [np.issubdtype(part.dtype, np.integer) for part in _arrays(example)]
    for part, counts in zip(found, whole, strict=False):
        if counts and (part != np.floor(part)).any():
            raise BadMessage(f"{name} must be whole numbers")
    if isinstance(example, ScoreHistogram):
        if len(found) != 3 or found[0].ndim != 1 or [found[1].shape, found[2].shape] != [(len(found[0]), 2), (1,)]:
            raise BadMessage(f"{name} must be a histogram")
        histogram = ScoreHistogram(found[0].astype(np.int64), found[1].astype(np.int64), int(found[2][0]))
        if not histogram.is_possible:
            raise BadMessage(f"{name} must be a histogram with ascending bins, not coarser than needed")
        return histogram
    if len(found) != 1 or found[0].shape != example.shape:
        raise BadMessage(f"{name} must have the shape {list(example.shape)}")
    if whole[0] and (found[0] < 0).any():
        raise BadMessage(f"{name} must not be negative")
    return found[0].astype(example.dtype)


def profile_vector(reply: Message, most: int) -> NDArray[np.floating[Any]]:
    """The profile in a reply, checked."""
    vector = reply.arrays.get("vector")
    if vector is None or vector.ndim != 1 or not 0 < len(vector) <= most or vector.dtype.kind != "f":
        raise BadMessage("it has no profile vector")
    if not np.isfinite(vector).all():
        raise BadMessage("its profile vector is not finite")
    return vector
