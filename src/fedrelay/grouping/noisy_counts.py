"""Class counts with noise, which leaves the class of every single sample uncertain.

Paper: A. Ghosh, T. Roughgarden, M. Sundararajan. Universally Utility-Maximizing Privacy Mechanisms. STOC 2009.

Rule: every count gets discrete Laplace noise, P(z) ∝ exp(−ε|z|/2), the difference of two geometric numbers. If one
sample had another class, two counts would change by one each, so the counts are ε-differentially private with respect
to the class of any one sample. Noise of whole numbers has no low bits that could reveal the count. Counts below 0
become 0, which only looks at what is sent.

Deviations: the number of samples is not protected, because merges weigh clients by it; that is why neighbours here
differ in the class of a sample and not in its presence.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def noisy_counts(counts: NDArray[np.int64], epsilon: float, uniform: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Add noise to counts.

    Args:
        counts: Samples of each class.
        epsilon: How much the class of one sample may matter.
        uniform: Numbers in (0, 1], two for each class, of which the noise is made.
    """
    up, down = np.floor(-np.log(uniform.reshape(2, -1)) / (epsilon / 2)).astype(np.int64)
    found: NDArray[np.int64] = np.maximum(0, counts + up - down)
    return found
