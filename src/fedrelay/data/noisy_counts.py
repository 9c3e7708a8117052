"""Class counts with noise, which leaves the class of every single sample uncertain.

Paper: A. Ghosh, T. Roughgarden, M. Sundararajan. Universally Utility-Maximizing Privacy Mechanisms. STOC 2009.

Rule: every count gets discrete Laplace noise, P(z) ∝ exp(−ε|z|/2), the difference of two geometric numbers. If one
sample had another class, two counts would change by one each, so the counts are ε-differentially private with respect
to the class of any one sample. Noise of whole numbers has no low bits that could reveal the count. Counts are moved
into the range from 0 to the number of samples, which looks at nothing that is secret.

Deviations: the number of samples is not protected, because merges weigh clients by it; that is why neighbours here
differ in the class of a sample and not in its presence. Every sample must have one label, and which samples are counted
must not depend on labels, as it does after a stratified split. The noise ends at 73/ε, which random numbers of 53 bits
reach: δ is 10⁻¹⁵ and not 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MIN_EPSILON = 1e-6
"""With less, every count would be noise alone."""


def noisy_counts(counts: NDArray[np.int64], epsilon: float, uniform: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Add noise to counts.

    Args:
        counts: Samples of each class.
        epsilon: How much the class of one sample may matter.
        uniform: Numbers in (0, 1], two for each class, of which the noise is made.
    """
    up, down = np.floor(-np.log(uniform.reshape(2, -1)) / (epsilon / 2)).astype(np.int64)
    found: NDArray[np.int64] = np.clip(counts + up - down, 0, counts.sum())
    return found
