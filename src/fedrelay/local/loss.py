"""The loss of a training step."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedrelay.data.dataset import IGNORED_LABEL

Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs of the module, targets) → scalar."""


def cross_entropy(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """The cross-entropy of a batch; the predictions at each position of a sequence count as separate samples."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED_LABEL, reduction=reduction)
