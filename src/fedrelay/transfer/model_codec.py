"""Whole models as bytes: the trained part encoded, buffers and counters as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import TransferSettings
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.transfer.base import Codec, DamagedEncoding, Encoded
from fedrelay.transfer.bfloat16 import Bfloat16
from fedrelay.transfer.float16 import Float16
from fedrelay.transfer.int8 import Int8
from fedrelay.transfer.top_k import TopK

CODECS: Mapping[str, Callable[[TransferSettings], Codec]] = {
    "float16": lambda settings: Float16(),
    "bfloat16": lambda settings: Bfloat16(),
    "int8": lambda settings: Int8(),
    "top-k": lambda settings: TopK(settings.keep),
}
"""Name → codec. float32 is none: models are sent as they are."""


@dataclass(frozen=True)
class ModelCodec:
    """Encodes flat models of one layout."""

    codec: Codec
    layout: FlatLayout

    @classmethod
    def of(cls, settings: TransferSettings, layout: FlatLayout) -> ModelCodec | None:
        """The codec that the settings name; None where models are sent as they are.

        Raises:
            SpecError: The codec does not fit the model.
        """
        if settings.codec == "float32":
            return None
        if layout.dtype != torch.float32:
            raise SpecError(f"transfer.codec: {settings.codec!r} needs a float32 model, got {layout.dtype}")
        return cls(CODECS[settings.codec](settings), layout)

    @property
    def from_server(self) -> bool:
        """Whether models that the server sends are encoded."""
        return not self.codec.needs_reference

    @property
    def bytes(self) -> int:
        """The bytes of an encoded model."""
        trained = self.layout.trained_size
        return self.codec.size(trained) + (self.layout.size - trained) * self.layout.dtype.itemsize

    def encode(self, model: Tensor, reference: Tensor, random: np.random.Generator | None = None) -> Encoded:
        """A model as bytes; `reference` is the model that its sender received."""
        trained = self.layout.trained_size
        flat, known = model.detach().cpu().numpy(), reference.detach().cpu().numpy()
        rest = flat[trained:].astype("<f4").view(np.uint8)
        return np.concatenate([self.codec.encode(flat[:trained], known[:trained], random), rest])

    def decode(self, encoded: Encoded, reference: Tensor) -> Tensor:
        """The model of an encoding, in new memory.

        Raises:
            DamagedEncoding: The bytes are none that `encode` makes.
        """
        trained = self.layout.trained_size
        if encoded.dtype != np.uint8 or encoded.shape != (self.bytes,):
            raise DamagedEncoding(f"its encoding has {encoded.nbytes} bytes instead of {self.bytes}")
        own, rest = np.split(np.ascontiguousarray(encoded), [self.codec.size(trained)])
        values = self.codec.decode(own.copy(), reference.detach().cpu().numpy()[:trained])
        return torch.from_numpy(np.concatenate([values, rest.copy().view("<f4").astype(np.float32)]))

    def round_trip(self, model: Tensor, reference: Tensor, random: np.random.Generator) -> Tensor:
        """The model as its receiver decodes it."""
        return self.decode(self.encode(model, reference, random), reference)
