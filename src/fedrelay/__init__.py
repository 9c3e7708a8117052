"""FedRelay: federated learning in which models travel from client to client.

>>> import fedrelay as fr
>>> result = fr.run("fedseq", data="digits", clients=20, alpha=0, rounds=3)
>>> sorted(result.transfers)
['c2c', 'c2s', 's2c']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedrelay.api import compare, export, load_data, methods, plan, resume, run, tune
    from fedrelay.data.federation import Federation, federate
    from fedrelay.data.table_federation import federate_table
    from fedrelay.data.torch_dataset_federation import federate_datasets
    from fedrelay.errors import (
        DataError,
        DivergedError,
        EngineError,
        FedRelayError,
        RunFolderError,
        SpecError,
    )
    from fedrelay.experiment.method_registration import register
    from fedrelay.experiment.spec import Comparison, Experiment
    from fedrelay.grouping.grouping import Grouping
    from fedrelay.grouping.profiles.base import Profile
    from fedrelay.local.hop_context import HopContext, TrainedHop
    from fedrelay.local.terms.base import AnchoredTerm, LossTerm, MergedRound, Term, TermResult
    from fedrelay.local.terms.tensor_declarations import ClientState, Payload, ServerState
    from fedrelay.merge.base import Merge, MergeInput, MergeResult
    from fedrelay.routes.base import PlanningContext, Routing, sample
    from fedrelay.routes.plan import RoundPlan, Route
    from fedrelay.runtime.callback import Callback, RoundContext, StopRun
    from fedrelay.runtime.comparison_result import ComparisonResult, MethodResults
    from fedrelay.runtime.interrupt import Interrupted
    from fedrelay.runtime.result import Result
    from fedrelay.runtime.sweep_result import SweepResult
    from fedrelay.runtime.tracking import CsvMetrics, MLflow, TensorBoard, WandB
    from fedrelay.runtime.versions import __version__
    from fedrelay.tasks.base import EvaluationSums, MetricInfo, Task
    from fedrelay.tasks.custom import CustomTask
    from fedrelay.tuning.result import TuningResult
    from fedrelay.warmup.base import Warmup

_HOMES = {
    "api": (
        *("compare", "export", "load_data", "methods", "plan", "resume", "run", "tune"),
        *("federate", "federate_datasets", "federate_table"),
    ),
    "data.federation": ("Federation",),
    "errors": ("DataError", "DivergedError", "EngineError", "FedRelayError", "RunFolderError", "SpecError"),
    "experiment.method_registration": ("register",),
    "experiment.spec": ("Comparison", "Experiment"),
    "grouping.grouping": ("Grouping",),
    "grouping.profiles.base": ("Profile",),
    "local.hop_context": ("HopContext", "TrainedHop"),
    "local.terms.base": ("AnchoredTerm", "LossTerm", "MergedRound", "Term", "TermResult"),
    "local.terms.tensor_declarations": ("ClientState", "Payload", "ServerState"),
    "merge.base": ("Merge", "MergeInput", "MergeResult"),
    "routes.base": ("PlanningContext", "Routing", "sample"),
    "routes.plan": ("RoundPlan", "Route"),
    "runtime.callback": ("Callback", "RoundContext", "StopRun"),
    "tasks.base": ("EvaluationSums", "MetricInfo", "Task"),
    "tasks.custom": ("CustomTask",),
    "runtime.comparison": ("ComparisonResult", "MethodResults"),
    "runtime.interrupt": ("Interrupted",),
    "runtime.result": ("Result",),
    "runtime.sweep": ("SweepResult",),
    "runtime.tracking": ("CsvMetrics", "MLflow", "TensorBoard", "WandB"),
    "runtime.versions": ("__version__",),
    "tuning.result": ("TuningResult",),
    "warmup.base": ("Warmup",),
}
"""The module of each public name. Names are imported when first used: PyTorch takes seconds, `--help` should not."""

_MODULES = {name: f"fedrelay.{module}" for module, names in _HOMES.items() for name in names}

__all__ = [
    "AnchoredTerm",
    "Callback",
    "ClientState",
    "Comparison",
    "ComparisonResult",
    "CsvMetrics",
    "CustomTask",
    "DataError",
    "DivergedError",
    "EngineError",
    "EvaluationSums",
    "Experiment",
    "FedRelayError",
    "Federation",
    "Grouping",
    "HopContext",
    "Interrupted",
    "LossTerm",
    "MLflow",
    "Merge",
    "MergeInput",
    "MergeResult",
    "MergedRound",
    "MethodResults",
    "MetricInfo",
    "Payload",
    "PlanningContext",
    "Profile",
    "Result",
    "RoundContext",
    "RoundPlan",
    "Route",
    "Routing",
    "RunFolderError",
    "ServerState",
    "SpecError",
    "StopRun",
    "SweepResult",
    "Task",
    "TensorBoard",
    "Term",
    "TermResult",
    "TrainedHop",
    "TuningResult",
    "WandB",
    "Warmup",
    "__version__",
    "compare",
    "export",
    "federate",
    "federate_datasets",
    "federate_table",
    "load_data",
    "methods",
    "plan",
    "register",
    "resume",
    "run",
    "sample",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fedrelay' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
