"""The setting of its own that `fedrelay tune` tries for a method, beside the learning rate, and its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Hyperparameter:
    """A setting and the values to try."""

    key: str
    """Where it is in a spec, such as `terms.prox.mu`."""

    values: tuple[Any, ...]


_SERVER_LR = Hyperparameter("merge.lr", (0.01, 0.1, 1.0))
_LOOKAHEAD = Hyperparameter("server.lookahead", (0.5, 0.7, 0.9))

HYPERPARAMETERS: Mapping[str, Hyperparameter] = {
    "fedprox": Hyperparameter("terms.prox.mu", (0.01, 0.1, 1.0)),
    "feddyn": Hyperparameter("terms.drift.alpha", (0.01, 0.1, 1.0)),
    "feddc": Hyperparameter("terms.drift.alpha", (0.001, 0.01, 0.1)),
    "ghbm": Hyperparameter("terms.heavy-ball.beta", (0.5, 0.7, 0.9)),
    "fedsam": Hyperparameter("terms.sharpness.rho", (0.01, 0.05, 0.2)),
    "lookahead": _LOOKAHEAD,
    "fedacg": _LOOKAHEAD,
    "relay": _LOOKAHEAD,
    "moon": Hyperparameter("terms.contrast.mu", (0.1, 1.0, 5.0)),
    "fedmmd": Hyperparameter("terms.mmd.strength", (0.01, 0.1, 1.0)),
    "ewc": Hyperparameter("terms.fisher.strength", (0.01, 0.1, 1.0)),
    "glam": Hyperparameter("terms.glam.rho", (0.1, 0.3, 1.0)),
    "dp": Hyperparameter("terms.dp.clip", (0.3, 1.0, 3.0)),
    "fedadagrad": _SERVER_LR,
    "fedadam": _SERVER_LR,
    "fedyogi": _SERVER_LR,
    "fedavgm": Hyperparameter("merge.beta", (0.5, 0.7, 0.9)),
    "feddisco": Hyperparameter("merge.a", (0.1, 0.5, 1.0)),
    "trimmed-mean": Hyperparameter("merge.share", (0.1, 0.2, 0.4)),
}
"""Names of the catalogue → their setting. Names that are not listed have none: only their learning rate is tuned."""


def hyperparameter_of(method: str) -> Hyperparameter | None:
    """The setting to tune of a method, or of the first of several joined with `+` that has one.

    >>> hyperparameter_of("fedseq+fedprox").key
    'terms.prox.mu'
    """
    names = (name.strip() for name in method.split("+"))
    return next((HYPERPARAMETERS[name] for name in names if name in HYPERPARAMETERS), None)
