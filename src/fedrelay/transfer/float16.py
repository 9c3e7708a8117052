"""float16: two bytes for each weight, with 11 significant bits and absolute values up to 65,504."""

from __future__ import annotations

import numpy as np

from fedrelay.transfer.base import Codec, Encoded, Values, exponents_of, round_to_steps

_SIGNIFICANT_BITS = 11
_SMALLEST_EXPONENT = -24
"""Steps of the smallest numbers are 2^-24."""

_LARGEST = 65504.0


class Float16(Codec):
    """IEEE half precision. Larger values become infinite, which the guard refuses."""

    def size(self, count: int) -> int:
        return 2 * count

    def encode(self, values: Values, reference: Values, random: np.random.Generator | None = None) -> Encoded:
        exponents = np.maximum(exponents_of(values) - _SIGNIFICANT_BITS, _SMALLEST_EXPONENT)
        rounded = round_to_steps(values, exponents, random)
        rounded = np.where(np.abs(rounded) > _LARGEST, np.copysign(np.float32(np.inf), rounded), rounded)
        return rounded.astype("<f2").view(np.uint8)

    def decode(self, encoded: Encoded, reference: Values) -> Values:
        self._check_size(encoded, len(reference))
        return encoded.view("<f2").astype(np.float32)
