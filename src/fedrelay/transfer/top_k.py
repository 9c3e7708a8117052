"""Top-k: only the weights that changed most are sent.

Paper: S. U. Stich, J.-B. Cordonnier, M. Jaggi. Sparsified SGD with Memory. NeurIPS 2018.

Rule: of n weights, the k = ⌈keep·n⌉ whose difference to the model that the client received is largest are sent, with
their positions: 32 bits for each position, or one bit for each weight of the model if that is shorter. All other
weights stay those of the received model.

Deviations: the new weights are sent, not their differences, so that nothing is rounded. What was not sent is kept by
the client (`local/error_feedback.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedrelay.transfer.base import Codec, DamagedEncoding, Encoded, Values

_VALUE_BYTES = 4
_POSITION_BYTES = 4


@dataclass(frozen=True)
class TopK(Codec):
    """The weights that differ most from the reference."""

    needs_reference: ClassVar[bool] = True

    keep: float
    """Share of the weights that are sent."""

    def size(self, count: int) -> int:
        return self.kept(count) * _VALUE_BYTES + self._position_bytes(count)

    def kept(self, count: int) -> int:
        """How many of the weights are sent."""
        return min(count, math.ceil(self.keep * count - 1e-9))  # 0.07·100 is a little more than 7

    def encode(self, values: Values, reference: Values, random: np.random.Generator | None = None) -> Encoded:
        positions = self._largest(np.abs(values - reference))
        if self._has_bitmap(len(values)):
            chosen = np.zeros(len(values), np.uint8)
            chosen[positions] = 1
            where = np.packbits(chosen)
        else:
            where = positions.astype("<u4").view(np.uint8)
        return np.concatenate([where, values[positions].astype("<f4").view(np.uint8)])

    def decode(self, encoded: Encoded, reference: Values) -> Values:
        count = len(reference)
        self._check_size(encoded, count)
        where, sent = np.split(encoded, [self._position_bytes(count)])
        if self._has_bitmap(count):
            bits = np.unpackbits(where)
            positions = np.flatnonzero(bits)
            if len(positions) != self.kept(count) or bits[count:].any():
                raise DamagedEncoding(f"its encoding does not name {self.kept(count)} of {count} weights")
        else:
            positions = where.view("<u4").astype(np.int64)
            if np.any(positions >= count) or np.any(np.diff(positions) <= 0):
                raise DamagedEncoding("its encoding has positions out of range or out of order")
        values = reference.copy()
        values[positions] = sent.view("<f4")
        return values

    def _largest(self, sizes: Values) -> NDArray[np.int64]:
        """The positions of the k largest, in order. Of equal ones the first are taken, on every machine."""
        kept = self.kept(len(sizes))
        if not kept:
            return np.zeros(0, np.int64)
        sizes = np.nan_to_num(sizes, nan=np.inf, posinf=np.inf)  # what is not finite must not be hidden
        least = np.partition(sizes, len(sizes) - kept)[len(sizes) - kept]
        chosen = sizes > least
        chosen[np.flatnonzero(sizes == least)[: kept - np.count_nonzero(chosen)]] = True
        return np.flatnonzero(chosen)

    def _has_bitmap(self, count: int) -> bool:
        return -(-count // 8) < self.kept(count) * _POSITION_BYTES

    def _position_bytes(self, count: int) -> int:
        return min(-(-count // 8), self.kept(count) * _POSITION_BYTES)
