"""FedRelay: federated learning in which models travel from client to client.

>>> import fedrelay as fr
>>> result = fr.run("fedseq", data="digits", clients=100, alpha=0, rounds=60)
>>> result.accuracy, result.history[-1]["bytes"]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedrelay.api import compare, load_data, methods, plan, resume, run
    from fedrelay.data.federation import Federation, federate
    from fedrelay.errors import (
        DataError,
        DivergedError,
        EngineError,
        FedRelayError,
        RunFolderError,
        SpecError,
    )
    from fedrelay.experiment.spec import Comparison, Experiment
    from fedrelay.routes.plan import RoundPlan, Route
    from fedrelay.runtime.comparison import ComparisonResult, MethodResults
    from fedrelay.runtime.loop import Interrupted, Observer
    from fedrelay.runtime.result import Result

__all__ = [
    "Comparison",
    "ComparisonResult",
    "DataError",
    "DivergedError",
    "EngineError",
    "Experiment",
    "FedRelayError",
    "Federation",
    "Interrupted",
    "MethodResults",
    "Observer",
    "Result",
    "RoundPlan",
    "Route",
    "RunFolderError",
    "SpecError",
    "compare",
    "federate",
    "load_data",
    "methods",
    "plan",
    "resume",
    "run",
]

_ROOMS = {
    "Comparison": "fedrelay.experiment.spec",
    "MethodResults": "fedrelay.runtime.comparison",
    "DataError": "fedrelay.errors",
    "DivergedError": "fedrelay.errors",
    "EngineError": "fedrelay.errors",
    "Experiment": "fedrelay.experiment.spec",
    "FedRelayError": "fedrelay.errors",
    "Federation": "fedrelay.data.federation",
    "Interrupted": "fedrelay.runtime.loop",
    "Observer": "fedrelay.runtime.loop",
    "ComparisonResult": "fedrelay.runtime.comparison",
    "Result": "fedrelay.runtime.result",
    "RoundPlan": "fedrelay.routes.plan",
    "Route": "fedrelay.routes.plan",
    "RunFolderError": "fedrelay.errors",
    "SpecError": "fedrelay.errors",
    "compare": "fedrelay.api",
    "federate": "fedrelay.data.federation",
    "load_data": "fedrelay.api",
    "methods": "fedrelay.api",
    "plan": "fedrelay.api",
    "resume": "fedrelay.api",
    "run": "fedrelay.api",
}
"""Where each name lives. It is fetched when first used: importing torch takes seconds, `--help` should not."""


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'fedrelay' has no attribute {name!r}")
    value = getattr(import_module(_ROOMS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
