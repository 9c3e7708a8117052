from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.data.noisy_counts import MIN_EPSILON, noisy_counts
from fedrelay.rng import secret_uniform

EVEN = (np.arange(2_000_000) + 0.5) / 2_000_000
"""Evenly spread numbers instead of random ones."""


def chances(count, epsilon):
    """The chance of every noisy number, from those of the two halves of the noise."""
    base, none = np.full(len(EVEN), 100), np.ones_like(EVEN)
    up = noisy_counts(base, epsilon, np.stack([EVEN, none])) - base
    down = base - noisy_counts(base, epsilon, np.stack([none, EVEN]))
    halves = [np.bincount(half, minlength=101)[:101] / len(EVEN) for half in (up, down)]
    noise = np.convolve(halves[0], halves[1][::-1])  # from −100 to 100
    found = np.zeros(40)
    for number, chance in zip(range(-100, 101), noise, strict=True):
        if max(0, count + number) < len(found):
            found[max(0, count + number)] += chance
    return found


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_noise_is_discrete_laplace(epsilon):
    decay = np.exp(-epsilon / 2)
    expected = (1 - decay) / (1 + decay) * decay ** np.abs(np.arange(5, 20) - 12)
    np.testing.assert_allclose(chances(12, epsilon)[5:20], expected, rtol=1e-3)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize(("one", "other"), [(5, 6), (0, 1)])
def test_a_count_that_is_one_higher_makes_no_number_much_likelier(epsilon, one, other):
    """Another class of one sample changes two counts, each by one: half of ε for each."""
    low, high = chances(one, epsilon)[:8], chances(other, epsilon)[:8]
    assert np.abs(np.log(low / high)).max() == pytest.approx(epsilon / 2, rel=1e-3)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20), st.floats(0.01, 10), st.integers(0, 2**32))
def test_counts_stay_counts(counts, epsilon, seed):
    uniform = 1 - np.random.default_rng(seed).random(2 * len(counts))
    found = noisy_counts(np.array(counts), epsilon, uniform)
    assert found.dtype == np.int64
    assert found.shape == (len(counts),)
    assert (found >= 0).all()
    assert (found <= sum(counts)).all()


def test_the_least_epsilon_hides_everything():
    """Noise is far larger than the counts, so all of them end at one of the bounds."""
    counts = np.array([40, 0, 3, 7, 500, 12])
    found = noisy_counts(counts, MIN_EPSILON, secret_uniform(12))
    assert set(found.tolist()) <= {0, counts.sum()}


def test_secret_numbers_are_uniform_and_never_zero():
    numbers = secret_uniform(20_000)
    assert 0 < numbers.min() < 0.01
    assert 0.99 < numbers.max() <= 1
    assert numbers.mean() == pytest.approx(0.5, abs=0.02)  # seven standard errors
    assert not np.array_equal(numbers, secret_uniform(20_000))
