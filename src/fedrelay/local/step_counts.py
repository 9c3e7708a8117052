"""How many steps a client trains at a hop, where clients differ in size.

Paper: N. Balachandar, K. Chang, J. Kalpathy-Cramer, D. L. Rubin. Accounting for data variability in multi-institutional
distributed deep learning for medical imaging. Journal of the American Medical Informatics Association 27, 2020
("proportional local training iterations").

Rule, with E epochs, batch size B, n samples of the client and n̄ on average:
- `by-size`: E·⌈n/B⌉, whole passes over the client's samples. These are the paper's proportional iterations.
- `equal`: E·⌈n̄/B⌉, what a client of average size trains. The paper's starting point: all train alike.
- `inverse-size`: E·⌈n̄/B⌉ · n̄/n, rounded, from 1 to ten times that of a client of average size. The smaller a client,
  the more it trains: the other way round, as a control.
- a number: exactly as many steps.

Deviations: the paper gives each institution a number of iterations in proportion to its samples; a whole number of
passes over them is the same but for a short last batch. `inverse-size` and its limit are ours.
"""

from __future__ import annotations

from collections.abc import Callable

from fedrelay.experiment.sections import StepRule

LARGEST_FACTOR = 10
"""inverse-size: a small client trains at most this many times as many steps as one of average size."""


def step_count(
    steps: StepRule | int, epochs: int, samples: int, mean_size: float, steps_per_epoch: Callable[[int], int]
) -> int:
    """The number of steps of a hop; 0 without samples.

    Args:
        steps: The rule, or the number.
        epochs: Passes over the samples, which the rules start from.
        samples: The number of samples of the client.
        mean_size: That of all clients, on average.
        steps_per_epoch: Samples → steps of a pass over them.
    """
    if not samples:
        return 0
    if isinstance(steps, int):
        return steps
    if steps == "by-size":
        return epochs * steps_per_epoch(samples)
    average = epochs * steps_per_epoch(max(1, round(mean_size)))
    if steps == "equal":
        return average
    return min(max(1, round(average * mean_size / samples)), LARGEST_FACTOR * average)
