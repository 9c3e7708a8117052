"""int8: one byte for each weight, and one byte for the step of every 64 weights.

Paper: A. Reisizadeh et al. FedPAQ. AISTATS 2020, for stochastic rounding in federated learning.

Rule: in each block of 64 weights, the step is the smallest power of two 2^s with |w| ≤ 127·2^s; a weight is sent as the
integer q from −127 to 127 for q·2^s, rounded down or up at random so that its mean is the weight.

Deviations: FedPAQ encodes the change of a model, this codec the model itself, which also the next client of a chain can
decode. Powers of two cost up to one bit, but decoded models are encoded again without loss.
"""

from __future__ import annotations

import numpy as np

from fedrelay.transfer.base import Codec, DamagedEncoding, Encoded, Values, exponents_of, round_to_integers

BLOCK = 64
"""Weights that share a step."""

_LARGEST = 127
_BITS = 7
_EXPONENTS = range(-126, 122)
"""Exponents of steps: the smallest normal float32, and the largest whose 127-fold is finite."""


class Int8(Codec):
    """Integers from −127 to 127 with a common step for each block."""

    def size(self, count: int) -> int:
        return count + _blocks(count)

    def encode(self, values: Values, reference: Values, random: np.random.Generator | None = None) -> Encoded:
        padded = np.zeros(_blocks(len(values)) * BLOCK, np.float32)
        padded[: len(values)] = values
        blocks = padded.reshape(-1, BLOCK)
        largest = np.abs(blocks).max(axis=1)
        steps = exponents_of(largest) - _BITS
        steps += np.ldexp(largest, -steps) > _LARGEST
        steps = np.clip(steps, _EXPONENTS[0], _EXPONENTS[-1])
        integers = round_to_integers(np.ldexp(blocks, -steps[:, None]), random)
        finite = np.isfinite(largest)
        integers[~finite] = 0.0
        marks = np.where(finite, steps, _NOT_FINITE).astype(np.int8)
        return np.concatenate([marks.view(np.uint8), integers.astype(np.int8).ravel()[: len(values)].view(np.uint8)])

    def decode(self, encoded: Encoded, reference: Values) -> Values:
        count = len(reference)
        self._check_size(encoded, count)
        steps, integers = np.split(encoded.view(np.int8), [_blocks(count)])
        if np.any((steps > _EXPONENTS[-1]) | ((steps < _EXPONENTS[0]) & (steps != _NOT_FINITE))):
            raise DamagedEncoding("its encoding has a step that is no number")
        if np.any(integers < -_LARGEST):
            raise DamagedEncoding("its encoding has an integer below -127")
        values = np.ldexp(integers.astype(np.float32), np.repeat(steps.astype(np.int32), BLOCK)[:count])
        values[np.repeat(steps == _NOT_FINITE, BLOCK)[:count]] = np.nan
        return values


_NOT_FINITE = -128
"""Stands for the step of a block with values that are not finite: the whole block is decoded as NaN."""


def _blocks(count: int) -> int:
    return -(-count // BLOCK)
