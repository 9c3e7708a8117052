"""Batches in which all classes of a client are equally likely.

Paper: N. Balachandar, K. Chang, J. Kalpathy-Cramer, D. L. Rubin. Accounting for data variability in multi-institutional
distributed deep learning for medical imaging. Journal of the American Medical Informatics Association 27, 2020
("locally weighted minibatch sampling").

Rule: each sample of a batch is drawn with replacement, with a probability in inverse proportion to how many samples of
the client have its class: first a class the client has, each as likely, then one of its samples. A pass has as many
samples as the client.

Deviations: none. A client with one class trains on the same samples as ever, drawn with replacement.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def class_weighted_order(labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """As many indices of samples as there are labels, all classes equally likely."""
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    chance = 1.0 / (len(counts) * counts[classes])
    return rng.choice(len(labels), len(labels), p=chance / chance.sum())
