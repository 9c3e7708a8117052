"""bfloat16: two bytes for each weight, with 8 significant bits and the range of float32."""

from __future__ import annotations

import numpy as np

from fedrelay.transfer.base import Codec, Encoded, Values, exponents_of, round_to_steps

_SIGNIFICANT_BITS = 8
_SMALLEST_EXPONENT = -133
"""Steps of the smallest numbers are 2^-133."""


class Bfloat16(Codec):
    """The upper half of the bits of float32."""

    def size(self, count: int) -> int:
        return 2 * count

    def encode(self, values: Values, reference: Values, random: np.random.Generator | None = None) -> Encoded:
        exponents = np.maximum(exponents_of(values) - _SIGNIFICANT_BITS, _SMALLEST_EXPONENT)
        with np.errstate(over="ignore"):  # to infinity, which the guard refuses
            rounded = round_to_steps(values, exponents, random)
        return (rounded.view(np.uint32) >> np.uint32(16)).astype("<u2").view(np.uint8)

    def decode(self, encoded: Encoded, reference: Values) -> Values:
        self._check_size(encoded, len(reference))
        return (encoded.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
