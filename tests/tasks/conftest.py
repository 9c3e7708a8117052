"""Facts about targets, as a task needs them, without any data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray


@dataclass(frozen=True)
class TargetFacts:
    """The targets of a federation."""

    class_count: int = 0
    target_shape: tuple[int, ...] = ()
    histograms: tuple[tuple[int, ...], ...] = ()
    name: str = "toy"

    @property
    def client_count(self) -> int:
        return len(self.histograms)

    def histogram(self, client: int) -> NDArray[np.int64]:
        return np.array(self.histograms[client], np.int64)


@pytest.fixture
def facts() -> type[TargetFacts]:
    """How to describe targets."""
    return TargetFacts


@pytest.fixture
def generator() -> torch.Generator:
    """Random numbers that are the same in every run."""
    return torch.Generator().manual_seed(7)
