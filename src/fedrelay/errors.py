"""The exception tree. Everything a user can cause or must know about is a `FedRelayError`.

    FedRelayError
    ├── SpecError         an experiment that cannot be: unknown key, wrong type, impossible value
    ├── DataError         a data set that is missing, damaged or unfit for what was asked
    ├── RunFolderError    a run folder that is damaged, foreign or in use
    ├── DivergedError     a model that left the finite numbers
    └── EngineError       the engine could not carry out a hop
        └── FruitlessError    in a whole run nobody's work was accepted

The command line prints the message of any of them, without a traceback, and exits with `exit_code`.
"""


class FedRelayError(Exception):
    """Base of all expected failures."""

    exit_code = 1


class SpecError(FedRelayError):
    """The experiment as described cannot be run."""

    exit_code = 2


class DataError(FedRelayError):
    """A data set is missing, damaged or unfit for what was asked."""

    exit_code = 3


class RunFolderError(FedRelayError):
    """A run folder is damaged, foreign or in use by another process."""

    exit_code = 4


class DivergedError(FedRelayError):
    """A model left the finite numbers."""

    exit_code = 5


class EngineError(FedRelayError):
    """The engine could not carry out a hop."""

    exit_code = 6


class FruitlessError(EngineError):
    """In a whole run nobody's work was accepted: no client answered, or none in time."""
