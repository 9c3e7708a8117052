"""How a run fails: what is saved, and what the message says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedrelay.errors import DataError, DivergedError, EngineError, NoUpdateAcceptedError, SpecError
from fedrelay.robustness.fault_events import DIVERGED, server_event
from fedrelay.runtime.recorder import Recorder
from fedrelay.runtime.unsaved_inputs import continued_in_python
from fedrelay.user_code import errors_in_own_part

if TYPE_CHECKING:
    from fedrelay.runtime.round_loop import RoundLoop


@contextmanager
def saved_and_explained_failures(run: RoundLoop) -> Iterator[None]:
    """Save what can be saved of a run that fails, and say in the error where to find it and how to continue."""
    method = run.experiment.method
    try:
        with errors_in_own_part():
            yield
    except DivergedError as error:
        run.save()
        if not run.finished:
            run.recorder.add_events([server_event(run.state.round + 1, DIVERGED, str(error))])
        raise DivergedError(f"{method}: {error}{_where(run)}") from None
    except NoUpdateAcceptedError as error:
        raise NoUpdateAcceptedError(f"{method}: {error}{_where(run)}") from None
    except (EngineError, DataError, SpecError) as error:  # a SpecError or a DataError: code of the user's own failed
        # The last checkpoint stays: client state may belong to a round that was not finished.
        how = "continue from the last checkpoint with" if run.state.round else "no round was done; try again with"
        if run.folder is None:
            raise
        folder = run.folder.path
        message = f"{error}; {how}: {continued_in_python(folder, run.folder.facts) or f'fedrelay resume {folder}'}"
        raise type(error)(message) from error.__cause__


def check_anything_learned(recorder: Recorder, rounds: int) -> None:
    """Refuse a run in which every round was given up: its model is the first one."""
    if recorder.given_up < rounds:
        return
    reasons = ", ".join(f"{what} {times}×" for what, times in sorted(recorder.fault_events.items()))
    kind = DivergedError if recorder.refused else NoUpdateAcceptedError
    raise kind(f"no client update was accepted in any of the {rounds} rounds ({reasons}); the model is untrained")


def _where(run: RoundLoop) -> str:
    return f"; rounds 1 to {run.state.round} are kept in {run.folder.path}" if run.folder and run.state.round else ""
