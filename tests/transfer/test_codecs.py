"""Codecs: exact numbers, round trips, means, sizes and damaged bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.transfer.base import Codec, DamagedEncoding, Values
from fedrelay.transfer.bfloat16 import Bfloat16
from fedrelay.transfer.float16 import Float16
from fedrelay.transfer.int8 import Int8
from fedrelay.transfer.top_k import TopK

CODECS: list[Codec] = [Float16(), Bfloat16(), Int8(), TopK(0.3), TopK(0.01), TopK(1.0)]
ROUNDING = CODECS[:3]
CODEC_IDS = ["float16", "bfloat16", "int8", "top-k 30 %", "top-k 1 %", "top-k 100 %"]

floats = st.floats(-6e4, 6e4, width=32, allow_subnormal=False)


def vector(*values: float) -> Values:
    return np.array(values, np.float32)


def zeros(count: int) -> Values:
    return np.zeros(count, np.float32)


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_IDS)
@settings(max_examples=40, deadline=None)
@given(values=st.lists(floats, min_size=1, max_size=140), seed=st.integers(0, 9))
def test_what_was_decoded_once_is_encoded_without_loss(codec: Codec, values: list[float], seed: int) -> None:
    wanted, reference = vector(*values), np.random.default_rng(seed).normal(size=len(values)).astype(np.float32)
    encoded = codec.encode(wanted, reference, np.random.default_rng(seed))
    decoded = codec.decode(encoded, reference)
    assert encoded.nbytes == encoded.size == codec.size(len(values))
    again = codec.encode(decoded, reference, np.random.default_rng(seed + 1))
    assert codec.decode(again, reference).tobytes() == decoded.tobytes()
    assert codec.decode(codec.encode(decoded, reference), reference).tobytes() == decoded.tobytes()


@pytest.mark.parametrize("codec", ROUNDING, ids=CODEC_IDS[:3])
@settings(max_examples=10, deadline=None)
@given(number=st.integers(-3 * 4096, 3 * 4096))
def test_stochastic_rounding_keeps_the_mean(codec: Codec, number: int) -> None:
    value = number / 4096
    values = np.full(64 * 500, value, np.float32)
    values[::64] = 3.0  # the step of int8 does not depend on the value
    decoded = codec.decode(codec.encode(values, values, np.random.default_rng(5)), values)
    found = np.delete(decoded, np.s_[::64]).astype(np.float64)
    assert len(np.unique(found)) <= 2
    step = np.ptp(found)
    assert abs(found.mean() - value) <= 5 * step / 2 / np.sqrt(len(found))  # five standard errors


def test_int8_has_one_power_of_two_for_64_weights() -> None:
    values = vector(*[127.0] + [0.0] * 62 + [-1.0], 0.5, 0.25, 3 / 128)
    encoded = Int8().encode(values, values)
    assert encoded.view(np.int8).tolist() == [0, -7, 127, *[0] * 62, -1, 64, 32, 3]
    assert Int8().size(67) == 67 + 2
    assert Int8().decode(encoded, values).tolist() == values.tolist()


def test_int8_needs_the_next_step_beyond_127() -> None:
    values = vector(127.5)
    assert Int8().encode(values, values).view(np.int8).tolist() == [1, 64]


def test_zeros_stay_zeros() -> None:
    for codec in CODECS:
        assert not codec.decode(codec.encode(zeros(70), zeros(70), np.random.default_rng(1)), zeros(70)).any()


def test_float16_and_bfloat16_round_to_their_neighbours() -> None:
    value = vector(1 + 3 / 4096)
    assert Float16().decode(Float16().encode(value, value), value).tolist() == [1 + 1 / 1024]
    assert Bfloat16().decode(Bfloat16().encode(value, value), value).tolist() == [1.0]
    assert Float16().encode(value, value).tobytes() == value.astype("<f2").tobytes()


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_IDS)
def test_values_that_are_not_finite_are_not_hidden(codec: Codec) -> None:
    for bad in (np.nan, np.inf, -np.inf):
        decoded = codec.decode(codec.encode(vector(bad, 1.0), zeros(2), np.random.default_rng(1)), zeros(2))
        assert not np.isfinite(decoded).all()


def test_float16_makes_what_is_too_large_infinite() -> None:
    value = vector(70000.0, -70000.0)
    assert Float16().decode(Float16().encode(value, value), value).tolist() == [np.inf, -np.inf]


def test_top_k_sends_the_weights_that_changed_most() -> None:
    reference, wanted = vector(*[1.0] * 100), vector(*[1.0] * 100)
    wanted[[3, 50, 7]] = 1.5, -9.0, 1.25
    encoded = TopK(0.02).encode(wanted, reference)
    assert encoded.nbytes == TopK(0.02).size(100) == 2 * 8
    assert encoded[:8].view("<u4").tolist() == [3, 50]
    assert encoded[8:].view("<f4").tolist() == [1.5, -9.0]
    decoded = TopK(0.02).decode(encoded, reference)
    assert decoded[[3, 50, 7]].tolist() == [1.5, -9.0, 1.0]


def test_top_k_has_one_bit_for_each_weight_where_that_is_shorter() -> None:
    assert TopK(0.1).size(1000) == 100 * 4 + 125
    assert TopK(0.03).size(1000) == 30 * 8
    assert TopK(0.07).kept(100) == 7


def test_of_equal_changes_the_first_are_sent() -> None:
    decoded = TopK(0.4).decode(TopK(0.4).encode(vector(1, 1, 1, 1, 1), zeros(5)), zeros(5))
    assert decoded.tolist() == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_IDS)
def test_a_wrong_length_is_refused(codec: Codec) -> None:
    encoded = codec.encode(zeros(70), zeros(70))
    for damaged in (encoded[:-1], np.append(encoded, np.uint8(0))):
        with pytest.raises(DamagedEncoding, match=f"bytes instead of {codec.size(70)}"):
            codec.decode(damaged, zeros(70))


def test_impossible_steps_and_integers_are_refused() -> None:
    encoded = Int8().encode(zeros(3), zeros(3)).view(np.int8)
    with pytest.raises(DamagedEncoding, match="step"):
        Int8().decode(np.array([127, *encoded[1:]], np.int8).view(np.uint8), zeros(3))
    with pytest.raises(DamagedEncoding, match="below -127"):
        Int8().decode(np.array([encoded[0], -128, 0, 0], np.int8).view(np.uint8), zeros(3))


def test_impossible_positions_are_refused() -> None:
    def pairs(*positions: int) -> np.ndarray:
        return np.concatenate([np.array(positions, "<u4").view(np.uint8), zeros(len(positions)).view(np.uint8)])

    assert not TopK(0.02).decode(pairs(0, 99), zeros(100)).any()
    for positions in ((0, 100), (5, 5), (7, 3), (0, 2**32 - 1)):
        with pytest.raises(DamagedEncoding, match="positions"):
            TopK(0.02).decode(pairs(*positions), zeros(100))
    bitmap = TopK(0.3).encode(zeros(10), zeros(10))
    for first in (0b11110000, 0b11000000):
        with pytest.raises(DamagedEncoding, match="does not name 3 of 10 weights"):
            TopK(0.3).decode(np.array([first, *bitmap[1:]], np.uint8), zeros(10))
    with pytest.raises(DamagedEncoding, match="does not name"):  # a bit beyond the last weight
        TopK(0.3).decode(np.array([0b11000000, 0b00000001, *bitmap[2:]], np.uint8), zeros(10))
