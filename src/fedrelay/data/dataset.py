"""A data set as plain arrays: raw samples in compact form, and how they are scaled to model inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

IGNORED_LABEL = -100
"""Targets with this label (padding of a sequence) are ignored by the loss and by all metrics."""


@dataclass(frozen=True)
class Scaling:
    """Scales raw values to model inputs, per channel: `(x - shift) * scale`. Token data has no scaling."""

    shift: tuple[float, ...]
    scale: tuple[float, ...]


@dataclass(frozen=True)
class Dataset:
    """Train and test samples of one learning task.

    Images are `[n, channels, height, width]`, tabular rows `[n, features]`, token sequences `[n, length]`
    (integers). Labels are `[n]`, or `[n, length]` for a prediction at every position.
    `client_train` is the natural client of each train sample, 0, 1, …, if the data set has natural clients.
    """

    name: str
    kind: Literal["image", "tabular", "tokens", "signal", "volume"]
    x_train: NDArray[np.generic]
    y_train: NDArray[Any]
    x_test: NDArray[np.generic]
    y_test: NDArray[Any]
    classes: int
    """0 where targets are numbers."""

    scaling: Scaling | None = None
    client_train: NDArray[np.int64] | None = None
    client_names: tuple[str, ...] = ()
    """The names of the natural clients 0, 1, …, if they have any."""

    clients_are_given: bool = False
    """Whether the user said which client has which sample; then only a partition divides them anew."""

    task: str = "classification"
    """What the data are for, unless an experiment says otherwise."""

    test_sample_names: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """What tells test samples apart, column by column: `sample` (if only some are used), `row`, `id`, `client`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.x_train.shape[1:])
