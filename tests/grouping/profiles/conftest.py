"""Runs whose clients have profiles."""

from __future__ import annotations

from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment

SMALL = {"data": "digits", "clients": 12, "alpha": 0, "model": "mlp", "hidden": [8], "batch_size": 16}


def profiled(profile, workers=1, method="fedseq", settings=SMALL, **options):
    """A prepared run with profiles of its clients."""
    grouping = {f"grouping.{name}": value for name, value in {"assign": "icg", "profile": profile, **options}.items()}
    return prepare(experiment(method, **settings, **grouping, **{"engine.workers": workers}))
