"""The settings of a tuning that takes a moment."""

from __future__ import annotations

from typing import Any

from fedrelay.experiment.spec import validate
from fedrelay.tuning.settings import Tuning

TINY: dict[str, Any] = {
    "methods": ["fedavg", "fedprox"],
    "data": {"name": "digits", "clients": 6, "samples": 100, "test_samples": 50, "validation": 0.3},
    "rounds": 4,
    "seeds": [7, 8],
    "engine": {"workers": 1},
    "tune": {"trials": 4, "rungs": 2, "seeds": [1], "extensions": 1},
}


def tiny_tuning(**settings: Any) -> Tuning:
    """The tiny tuning with other settings; mappings inside are merged."""
    merged = {
        name: {**TINY[name], **value} if isinstance(value, dict) and name in TINY else value
        for name, value in settings.items()
    }
    return validate(Tuning, {**TINY, **merged})
