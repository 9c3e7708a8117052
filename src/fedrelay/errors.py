"""The exception tree. Every expected failure is a `FedRelayError`.

    FedRelayError
    ├── SpecError         invalid experiment: unknown key, wrong type, impossible value
    ├── DataError         a data set is missing, damaged or unsuitable
    ├── RunFolderError    a run folder is damaged, unknown or in use
    ├── DivergedError     a model has non-finite values, or all updates of clients were refused
    └── EngineError       the engine could not run a hop
        ├── NotSharedError           an owner does not share what the method needs
        └── NoUpdateAcceptedError    no client's work was accepted in the whole run

The command line prints the message without a traceback and exits with `exit_code`.
"""


class FedRelayError(Exception):
    """Base class of all expected failures."""

    exit_code = 1


class SpecError(FedRelayError):
    """The experiment is invalid: unknown key, wrong type or impossible value."""

    exit_code = 2


class DataError(FedRelayError):
    """A data set is missing, damaged or unsuitable."""

    exit_code = 3


class RunFolderError(FedRelayError):
    """A run folder is damaged, not written by FedRelay, or in use by another process."""

    exit_code = 4


class DivergedError(FedRelayError):
    """A model has non-finite values, or all updates of clients were refused."""

    exit_code = 5


class EngineError(FedRelayError):
    """The engine could not run a hop."""

    exit_code = 6


class NotSharedError(EngineError):
    """The owner of a node does not share what the method needs."""


class NoUpdateAcceptedError(EngineError):
    """No client's work was accepted in the whole run: no client answered, or none in time."""
