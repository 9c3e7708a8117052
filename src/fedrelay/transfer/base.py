"""The base class of all codecs, and stochastic rounding."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedrelay.errors import FedRelayError

Values = NDArray[np.float32]
"""The trained part of a model."""

Encoded = NDArray[np.uint8]


class DamagedEncoding(FedRelayError):
    """Bytes that no encoder has made."""


class Codec(ABC):
    """How the trained part of a model is encoded.

    The number of bytes depends on the number of values alone. What was decoded once is encoded again without loss:
    `decode(encode(decoded)) == decoded`, bit by bit. So simulations keep decoded models in memory, and real nodes
    encode the same models for the wire.

    >>> import numpy as np
    >>> from fedrelay.transfer.int8 import Int8
    >>> values = np.array([0.5, -1.0, 0.126], np.float32)
    >>> encoded = Int8().encode(values, values)
    >>> encoded.nbytes == Int8().size(3) == 4
    True
    >>> Int8().decode(encoded, values).tolist()
    [0.5, -1.0, 0.125]
    """

    needs_reference: ClassVar[bool] = False
    """Whether an encoding says how the model differs from one that sender and receiver both have. Then the server,
    which cannot know what a client has, sends models as they are."""

    @abstractmethod
    def size(self, count: int) -> int:
        """The number of bytes of this many values."""

    @abstractmethod
    def encode(self, values: Values, reference: Values, random: np.random.Generator | None = None) -> Encoded:
        """Encode values.

        Args:
            values: What to encode.
            reference: The model that the sender received; only codecs with `needs_reference` read it.
            random: For stochastic rounding; None: to the nearest value, which changes nothing that was decoded before.
        """

    @abstractmethod
    def decode(self, encoded: Encoded, reference: Values) -> Values:
        """The values of an encoding, in new memory.

        Args:
            encoded: What `encode` made.
            reference: As in `encode`; it also says how many values there are.

        Raises:
            DamagedEncoding: The bytes are none that `encode` makes.
        """

    def _check_size(self, encoded: Encoded, count: int) -> None:
        if encoded.shape != (self.size(count),):
            raise DamagedEncoding(f"its encoding has {encoded.size} bytes instead of {self.size(count)}")


def round_to_integers(values: Values, random: np.random.Generator | None) -> Values:
    """Round to the integer below or above with a probability that keeps the mean, or to the nearest without `random`.

    >>> round_to_integers(np.array([2.0, -0.4, 1.6], np.float32), None).tolist()
    [2.0, -0.0, 2.0]
    """
    if random is None:
        return np.rint(values)
    below = np.floor(values)
    with np.errstate(invalid="ignore"):  # infinite values stay as they are
        return below + (random.random(values.shape, np.float32) < values - below)


def round_to_steps(values: Values, exponents: NDArray[np.int32], random: np.random.Generator | None) -> Values:
    """Round to multiples of 2^exponent. Powers of two make this exact: multiples themselves never change."""
    return np.ldexp(round_to_integers(np.ldexp(values, -exponents), random), exponents)


def exponents_of(values: Values) -> NDArray[np.int32]:
    """The smallest e with |value| < 2^e."""
    return np.frexp(values)[1].astype(np.int32)
