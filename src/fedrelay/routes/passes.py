"""Sampling in passes: every client, or every group, takes part once before anyone takes part twice.

Papers: M. Gürbüzbalaban, A. Ozdaglar, P. Parrilo. Why Random Reshuffling Beats Stochastic Gradient Descent.
Mathematical Programming 186, 2021 (for samples, as in the epochs of centralised training); for clients Y. J. Cho et al.
On the Convergence of Federated Averaging with Cyclic Client Participation. ICML 2023.

Rule: pass p is a random order of all N; passes follow each other, and round t takes the next m, so it takes part of two
passes where m does not divide what is left. Nobody is in a round twice: who ends a pass in a round does not begin the
next one in it. After any number of rounds, no two clients differ by more than one in how often they were sampled.
Rounds have as many clients as with random sampling, so they cost the same.

Deviations: plans do not depend on what happened. A client that fails, or that the guard refuses, loses its turn until
the next pass; a client without samples and one that has left take their turns as before, and the round has a hop less.
A round that is repeated has the same clients.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedrelay.rng import generator


def sample_in_passes(seed: int, population: int, count: int, round: int) -> tuple[int, ...]:
    """The `count` of `population` that take part in a round, where everybody does before anyone does again.

    >>> [sample_in_passes(1, 5, 2, round) for round in (1, 2, 3, 4, 5)]
    [(1, 3), (2, 0), (4, 2), (4, 1), (3, 0)]
    """
    number, offset = divmod((round - 1) * count, population)
    found = _order(seed, population, count, number)[offset : offset + count].tolist()
    if len(found) < count:
        found += _order(seed, population, count, number + 1)[: count - len(found)].tolist()
    return tuple(found)


def _order(seed: int, population: int, count: int, number: int) -> NDArray[np.int64]:
    """The order of a pass, counted from 0. It depends on the pass before, if they share a round."""
    first = number
    while first * population % count:
        first -= 1
    for each in range(first, number):  # the cache keeps the last ones, so that passes are not nested deeply
        _order_after(seed, population, count, each)
    return _order_after(seed, population, count, number)


@lru_cache(maxsize=4)
def _order_after(seed: int, population: int, count: int, number: int) -> NDArray[np.int64]:
    drawn = generator(seed, "pass", number).permutation(population)
    shared = number * population % count
    if not shared:
        return drawn
    before = _order_after(seed, population, count, number - 1)[-shared:]
    others = drawn[~np.isin(drawn, before)]
    head = others[: count - shared]
    return np.concatenate([head, drawn[~np.isin(drawn, head)]])
