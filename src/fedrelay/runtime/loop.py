"""The round loop — the one place where the parts meet.

plan → engine runs hops → arrivals → merge → evaluate → record → checkpoint, once for every round.
"""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Protocol

from torch import nn

from fedrelay.data.federation import Federation
from fedrelay.engines.base import Engine, EngineEvent
from fedrelay.engines.local.executor import one_thread
from fedrelay.engines.start import check_within_reach, start_engine
from fedrelay.errors import DivergedError, EngineError, FedRelayError, FruitlessError, RunFolderError
from fedrelay.experiment.prepare import PreparedExperiment, prepare
from fedrelay.experiment.spec import Experiment
from fedrelay.local.arrival import Arrival
from fedrelay.local.client_state import ClientStateStore
from fedrelay.metrics.classification import accuracy_on, scores_of_counts
from fedrelay.robustness.executed_round import executed_round, unanswered
from fedrelay.robustness.fault_events import DIVERGED, FaultEvent, events_of_arrivals, server_event, too_few_arrivals
from fedrelay.routes.overlay import ExecutionOverlay
from fedrelay.routes.plan import RoundPlan
from fedrelay.runtime.recorder import Recorder
from fedrelay.runtime.result import Result, Row
from fedrelay.runtime.server import after_arrivals, mean_loss, observed, preview, round_inputs, with_waiting
from fedrelay.runtime.store import PROFILES, SELECTION, RunFolder, State
from fedrelay.runtime.versions import versions

log = logging.getLogger(__name__)


SAME_PRESS = 0.5
"""Interrupts within so many seconds count as one: `timeout` and process managers often send two at once."""


class Observer(Protocol):
    """Somebody who wants to see a run go by, such as a progress bar."""

    def profiling(self, done: int, clients: int) -> None:
        """Before the run begins, so many of the clients have described themselves, for groups to be formed."""

    def started(self, experiment: Experiment, round: int) -> None:
        """A run begins after `round` rounds that are already done."""

    def round_done(self, round: int, row: Row | None) -> None:
        """A round is done; `row` is its evaluation if there was one."""

    def stopping(self) -> None:
        """Ctrl-C was pressed; the run stops after the round under way."""


class Silent:
    """An observer that shows nothing."""

    def profiling(self, done: int, clients: int) -> None:
        """Nothing."""

    def started(self, experiment: Experiment, round: int) -> None:
        """Nothing."""

    def round_done(self, round: int, row: Row | None) -> None:
        """Nothing."""

    def stopping(self) -> None:
        """Nothing."""


class HopTap(Protocol):
    """Somebody who looks at models as clients receive them; the run goes on as if nobody did."""

    def turns(self, plan: RoundPlan) -> tuple[tuple[int, int], ...]:
        """(route, index) of the turns of a journey at which it looks."""

    def saw(self, plan: RoundPlan, arrivals: Sequence[Arrival]) -> None:
        """The models have travelled; what was seen is with the arrivals, and valid for this moment only."""


class NoTap:
    """A witness that never looks."""

    def turns(self, plan: RoundPlan) -> tuple[tuple[int, int], ...]:
        """None."""
        return ()

    def saw(self, plan: RoundPlan, arrivals: Sequence[Arrival]) -> None:
        """Nothing."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C after which the round was finished and everything saved; `result` holds what was done."""

    def __init__(self, result: Result) -> None:
        super().__init__(f"stopped after round {result.rounds} of {result.experiment.rounds}")
        self.result = result


def run_experiment(
    experiment: Experiment,
    *,
    federation: Federation | None = None,
    module: nn.Module | None = None,
    observer: Observer | None = None,
) -> Result:
    """Run an experiment from the start, in a new run folder where `out` is given."""
    observer = observer or Silent()
    if experiment.out is not None:
        RunFolder.check(experiment.out)  # before clients train for their profiles
    check_within_reach(experiment)
    setting = prepare(
        experiment, federation=federation, module=module, watch=lambda done, clients: observer.profiling(done, clients)
    )
    if experiment.out is None:
        return run_prepared(setting, observer=observer)
    experiment = setting.experiment
    assert experiment.out is not None
    facts = {
        "data_fingerprint": setting.federation.fingerprint(),
        "own_data": federation is not None,
        "own_model": module is not None,
    }
    folder = RunFolder.create(experiment.out, experiment, facts, setting.summary(), setting.findings())
    try:
        state = _beginning(setting)
        folder.save(state)
        return _travel(setting, state, folder, observer, NoTap())
    finally:
        folder.close()


def run_prepared(
    setting: PreparedExperiment, *, observer: Observer | None = None, witness: HopTap | None = None
) -> Result:
    """Run what was prepared from the start, without a run folder."""
    return _travel(setting, _beginning(setting), None, observer or Silent(), witness or NoTap())


def _beginning(setting: PreparedExperiment) -> State:
    """Before the first round."""
    return State(0, setting.first_weights(), setting.survey_seconds)


def resume_run(
    path: Path,
    *,
    federation: Federation | None = None,
    module: nn.Module | None = None,
    observer: Observer | None = None,
) -> Result:
    """Continue a run where its last checkpoint left it; a complete run is simply read."""
    folder = RunFolder.open(path)
    try:
        for own, given, what in (("own_data", federation, "data"), ("own_model", module, "model")):
            if folder.facts.get(own) and given is None:
                raise RunFolderError(
                    f"{path}: was started from Python with {what} of your own; "
                    f"continue it with fedrelay.resume({str(path)!r}, {what}=…)"
                )
        setting = prepare(
            folder.experiment,
            federation=federation,
            module=module,
            groups=folder.groups or None,
            survey=folder.survey(PROFILES),
            selection=folder.survey(SELECTION),
        )
        if setting.federation.fingerprint() != folder.facts.get("data_fingerprint"):
            raise RunFolderError(f"{path}: the data are not those the run was started with")
        _warn_of_other_versions(folder)
        state = folder.restore(partial(_is_evaluated, setting.experiment))
        if state is None:
            state = State(0, setting.first_weights())
        if state.weights.shape != (setting.layout.size,) or state.weights.dtype != setting.layout.dtype:
            raise RunFolderError(f"{path}: the checkpoint does not fit the model of spec.yaml")
        return _travel(setting, state, folder, observer or Silent(), NoTap())
    finally:
        folder.close()


def _travel(
    setting: PreparedExperiment, state: State, folder: RunFolder | None, observer: Observer, witness: HopTap
) -> Result:
    """All rounds that are still to be done."""
    experiment = setting.experiment
    book = Recorder(setting, folder)
    observer.started(experiment, state.round)
    if folder is not None and folder.result is not None and state.round >= experiment.rounds:
        return book.result(state)
    client_states = ClientStateStore(folder.path / "clients", run=folder.name) if folder else ClientStateStore()
    client_states.restore(folder.kept if folder else ())
    engine: Engine | None = None
    saved = time.monotonic()
    try:
        with _finish_round_on_interrupt(observer) as interrupted:
            while state.round < experiment.rounds and not interrupted():
                began = time.monotonic()
                _, before = setting.phase(state.round + 1)
                if engine is None or state.round == before:
                    if engine is not None:
                        engine.close()
                    engine = start_engine(setting.job(state.round + 1), experiment, client_states)
                if state.round == before:  # another program begins, with the model alone
                    state = replace(state, server={}, waiting={})
                    client_states.clear()
                state, row = _round(setting, engine, state, book, witness)
                took = time.monotonic() - began
                if state.round == 1:  # its clients were chosen when the run was prepared
                    took += setting.choosing_seconds(1)
                state = replace(state, seconds=state.seconds + took)
                book.timing(state.round, took)
                if folder and time.monotonic() - saved >= experiment.checkpoint.seconds:
                    _save(folder, state, client_states)
                    saved = time.monotonic()
                observer.round_done(state.round, row)
            if folder:
                _save(folder, state, client_states)
            result = book.result(state)
            if not result.complete:
                raise Interrupted(result)
            if book.given_up == experiment.rounds:
                raise _fruitless(book)
            if folder:
                folder.finish(result.summary(), result.model)
            return result
    except DivergedError as error:
        if folder:
            _save(folder, state, client_states)
        if state.round < experiment.rounds:
            book.happened([server_event(state.round + 1, DIVERGED, str(error))])
        raise DivergedError(f"{experiment.method}: {error}{_kept(folder, state)}") from None
    except FruitlessError as error:
        raise FruitlessError(f"{experiment.method}: {error}{_kept(folder, state)}") from None
    except EngineError as error:
        # The last checkpoint stands: what clients keep may belong to a round that was not finished.
        how = "continue from the last checkpoint with" if state.round else "no round was done; try again with"
        raise EngineError(f"{error}; {how}: fedrelay resume {folder.path}" if folder else str(error)) from None
    finally:
        if engine is not None:
            engine.close()
        client_states.close()


def _kept(folder: RunFolder | None, state: State) -> str:
    """Where to find what was done before a run failed."""
    return f"; rounds 1 to {state.round} are kept in {folder.path}" if folder and state.round else ""


def _fruitless(book: Recorder) -> FedRelayError:
    """What to say of a run whose every round was given up."""
    wrong = ", ".join(f"{what} {times}×" for what, times in sorted(book.fault_events.items()))
    kind = DivergedError if book.refused else FruitlessError
    return kind(f"in none of the {book.given_up} rounds anybody's work was accepted ({wrong}); the model is the first")


def _save(folder: RunFolder, state: State, client_states: ClientStateStore) -> None:
    """What clients keep first, then the checkpoint that refers to it."""
    client_states.commit(state.round)
    folder.save(state, client_states.names)
    client_states.forget_before(state.round)


def _round(
    setting: PreparedExperiment, engine: Engine, state: State, book: Recorder, witness: HopTap
) -> tuple[State, Row | None]:
    """One round: state in, state out."""
    experiment, round = setting.experiment, state.round + 1
    plan, overlay, arrivals, state = _journeys(setting, engine, state, book, witness)
    loss = mean_loss(arrivals)
    for arrival in arrivals:
        if arrival.route in overlay.followed:
            book.followed(round, arrival)
    with one_thread():
        state = after_arrivals(setting, plan, state, arrivals)
    state = replace(state, round=round)
    book.round_over()
    row = None
    if _is_evaluated(experiment, round):
        verdict = engine.evaluate(preview(setting, state))
        book.happened(engine_fault_events(round, engine.take_events()))
        judged = scores_of_counts(verdict.correct, verdict.predicted, verdict.actual)
        test_loss = verdict.mean_loss if math.isfinite(verdict.mean_loss) else None
        found: Row = {**asdict(judged), "loss": test_loss, "train_loss": loss}
        if experiment.eval.classes:
            found["accuracy_classes"] = accuracy_on(experiment.eval.classes, verdict.correct, verdict.actual)
        row = book.judged(round, found)
    return state, row


def _journeys(
    setting: PreparedExperiment, engine: Engine, state: State, book: Recorder, witness: HopTap
) -> tuple[RoundPlan, ExecutionOverlay, list[Arrival], State]:
    """Have models travel until enough of them come home; a round that never succeeds is given up."""
    experiment, fair = setting.experiment, with_waiting(setting.plan(state.round + 1), state)
    book.happened(
        [
            server_event(fair.round, "budget spent", "passed over from now on", client)
            for client in setting.out_of_budget(fair.round)
        ]
    )
    follow = bool(experiment.eval.forgetting) and fair.round % experiment.eval.forgetting == 0
    enough = min(experiment.recovery.min_arrivals, 1 if fair.real_arrivals else len(fair.routes))
    for attempt in range(experiment.recovery.repeats + 1):
        faulty = setting.faults.apply(fair, attempt)
        plan = faulty.plan
        overlay = ExecutionOverlay(
            attempt, faulty.tampers, witness.turns(plan), followed=(0,) if follow else (), overhead=faulty.overhead
        )
        began = time.monotonic()
        travels = plan.longest or plan.real_arrivals
        arrivals = engine.run_round(plan, overlay, round_inputs(setting, plan, state)) if travels else []
        executed = executed_round(
            plan,
            faulty.overhead,
            arrivals,
            timeout=experiment.recovery.timeout,
            elapsed=time.monotonic() - began,
            time_model=setting.stopwatch,
        )
        book.travelled(executed, unanswered(arrivals))
        book.happened([*faulty.events, *events_of_arrivals(plan.round, overlay, arrivals)])
        book.happened(engine_fault_events(fair.round, engine.take_events()))
        book.waited(arrivals)
        state = observed(setting, state, arrivals)
        witness.saw(plan, arrivals)
        home = sum(arrival.usable for arrival in arrivals)
        if home >= enough:
            if arrivals:
                engine.commit_client_state()
            if fair.routes and not home:
                book.happened([too_few_arrivals(fair.round, given_up=True)])
            return plan, overlay, arrivals, state
        last = attempt == experiment.recovery.repeats
        book.happened([too_few_arrivals(fair.round, given_up=last)])
        how = "round %d: %d of %d routes came home, %d are needed; the round "
        how += "is given up%s" if last else "repeats%s"
        log.warning(how, fair.round, home, len(fair.routes), enough, _who_failed(setting, arrivals))
    return plan, overlay, [], state


def _who_failed(setting: PreparedExperiment, arrivals: Sequence[Arrival]) -> str:
    """The nodes that did not do their part, for a warning; in simulation nobody has a name."""
    stops = (stop for arrival in arrivals for stop in zip(arrival.clients, arrival.hops, strict=True))
    reasons = {setting.node(client): hop.refused for client, hop in stops if hop.refused}
    named = [f"node {name!r}: {reason}" for name, reason in sorted(reasons.items()) if name]
    return f" ({'; '.join(named)})" if named else ""


def engine_fault_events(round: int, news: Sequence[EngineEvent]) -> list[FaultEvent]:
    """What an engine has to say, as the events of a round."""
    return [server_event(round, each.what, each.done, each.client) for each in news]


def _is_evaluated(experiment: Experiment, round: int) -> bool:
    return round % experiment.eval.every == 0 or round == experiment.rounds


def _warn_of_other_versions(folder: RunFolder) -> None:
    """Another version of torch may round differently; the run goes on, but the promise of equal bits is gone."""
    then, now = folder.facts.get("versions", {}), versions()
    changed = [
        f"{name} {then[name]} → {now[name]}"
        for name in ("torch", "numpy", "python")
        if then.get(name, now[name]) != now[name]
    ]
    if changed:
        log.warning(
            "%s was started with other versions (%s); results may differ in the last bits",
            folder.path,
            ", ".join(changed),
        )


@contextmanager
def _finish_round_on_interrupt(observer: Observer) -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C asks to stop after the round, the second stops at once."""
    asked, first = threading.Event(), 0.0
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def ask(signum: int, frame: FrameType | None) -> None:
        nonlocal first
        if not asked.is_set():
            asked.set()
            first = time.monotonic()
            observer.stopping()
        elif time.monotonic() - first > SAME_PRESS:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
