"""FedRelay: federated learning in which models travel from client to client.

>>> import fedrelay as fr
>>> result = fr.run("fedseq", data="digits", clients=100, alpha=0, rounds=60)
>>> result.accuracy, result.history[-1]["bytes"]
"""

from fedrelay.api import compare, load_data, methods, plan, resume, run
from fedrelay.comparison import Contender, Outcome
from fedrelay.data.federation import Federation, federate
from fedrelay.errors import (
    DataError,
    DivergedError,
    EngineError,
    FedRelayError,
    RunFolderError,
    SpecError,
)
from fedrelay.result import Result
from fedrelay.routes.plan import RoundPlan, Route
from fedrelay.runner import Interrupted
from fedrelay.spec import Comparison, Experiment

__all__ = [
    "Comparison",
    "Contender",
    "DataError",
    "DivergedError",
    "EngineError",
    "Experiment",
    "FedRelayError",
    "Federation",
    "Interrupted",
    "Outcome",
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
