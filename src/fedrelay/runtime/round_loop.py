"""The round loop: plan → run hops → arrivals → merge → evaluate → record → checkpoint → callbacks, round by round."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedrelay.data.own_data_per_seed import OwnData
from fedrelay.engines.base import Engine
from fedrelay.engines.start import check_within_reach, start_engine
from fedrelay.errors import RunFolderError, SpecError
from fedrelay.experiment.data_and_model import OwnModel
from fedrelay.experiment.method import build_method
from fedrelay.experiment.more_rounds import extended
from fedrelay.experiment.prepare import PreparedRun, prepare
from fedrelay.experiment.resolved_options import refuse_other_options
from fedrelay.experiment.spec import Experiment
from fedrelay.local.client_state import ClientStateStore
from fedrelay.robustness.guard import NO_HOPS_YET, TypicalHop
from fedrelay.routes.arrival import Arrival
from fedrelay.runtime.best_and_stop import BestAndStop
from fedrelay.runtime.callback import Callback, Callbacks, CurrentModel, RoundContext, as_callback
from fedrelay.runtime.client_evaluation_recorder import ClientEvaluationRecorder, clients_are_evaluated
from fedrelay.runtime.hop_tap import HopTap
from fedrelay.runtime.interrupt import Interrupted, finish_round_on_interrupt
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.recorder import Recorder, plan_summary, setup_files
from fedrelay.runtime.result import Result
from fedrelay.runtime.round_attempts import RoundAttempts
from fedrelay.runtime.round_evaluator import NO_MODELS, OwnModels, RoundEvaluator, evaluation_advice
from fedrelay.runtime.run_folder import RunFolder
from fedrelay.runtime.run_folder_reader import PROFILES, SELECTION
from fedrelay.runtime.run_state import BestSoFar, RunState
from fedrelay.runtime.save_failed_run import check_anything_learned, saved_and_explained_failures
from fedrelay.runtime.server import Server, mean_loss
from fedrelay.runtime.unsaved_inputs import check_unsaved_inputs
from fedrelay.runtime.versions import source_digests, warn_about_other_sources, warn_about_other_versions
from fedrelay.tasks.base import Task
from fedrelay.user_code import errors_in_own_part
from fedrelay.utc_time import utc_now

log = logging.getLogger(__name__)

PauseRule = Callable[[Row], bool]
"""Whether a run pauses after the round of a row of metrics. A paused run is incomplete; `resume` continues it."""


class RoundLoop:
    """The rounds of one run. `state` is the state after the last round that was finished."""

    def __init__(
        self,
        run: PreparedRun,
        state: RunState,
        folder: RunFolder | None,
        callback: Callback,
        tap: HopTap | None = None,
        pause: PauseRule | None = None,
    ) -> None:
        self.prepared, self.planner, _ = run
        self.experiment, self.state, self.folder, self.callback = self.prepared.experiment, state, folder, callback
        self.server = Server(self.prepared, self.planner)
        self.recorder = Recorder(run, folder)
        self.attempts = RoundAttempts(run, self.server, self.recorder, tap)
        self.evaluator = RoundEvaluator(self.prepared, self.recorder, callback)
        self.client_evaluations = ClientEvaluationRecorder(self.prepared, self.recorder)
        self.chooser = BestAndStop(self.prepared)
        self.client_states = (
            ClientStateStore(folder.path / "clients", run_id=folder.name) if folder else ClientStateStore()
        )
        self.engine: Engine | None = None
        self.pause = pause
        self.saved = time.monotonic()
        self.seconds_before = state.seconds
        """Spent before the run was resumed."""

        self.evaluation_seconds = 0.0
        """Spent on evaluation since the run was started or resumed."""

    def run(self) -> Result:
        """The result, after all rounds that are left, or those before the pause."""
        if self.folder is not None and self.folder.result is not None and self.finished:
            result = self._result()
            self.folder.repair(result.summary(), _final_models(result))
        else:
            result = self._run_rounds()
        if self.finished:
            self.callback.on_run_end(result)
        return result

    def _run_rounds(self) -> Result:
        if self.folder:
            self.folder.mark_incomplete()
        self.client_states.restore(self.folder.client_files if self.folder else ())
        self.callback.on_run_start(self.experiment, self.state.round)
        with (
            closing(self),
            saved_and_explained_failures(self),
            finish_round_on_interrupt(self.callback.on_interrupt) as interrupted,
        ):
            while not self.finished and not self.paused and not interrupted():
                self.run_round()
            self.save()
            if not self.finished and self.paused:
                return self._result()
            if not self.finished:
                raise Interrupted(self._result())
            check_anything_learned(self.recorder, self.state.round)
            result = self._result()
            if self.folder:
                self.folder.finish(result.summary(), _final_models(result))
            seconds = self.state.seconds - self.seconds_before
            if advice := evaluation_advice(self.evaluation_seconds, seconds, self.experiment.eval.every):
                log.warning(advice)
            return result

    def run_round(self) -> None:
        """Run the next round."""
        began, started = time.monotonic(), utc_now()
        engine, state = self._engine_of_phase()
        plan = self.planner.plan(state.round + 1, state.waiting)
        plan, arrivals, state = self.attempts.run_hops(engine, plan, state)
        state = self.server.receive(plan, state, arrivals)
        self.recorder.add_costs()
        context = RoundContext(self.experiment, state.round, plan, None, self._model(state), self.prepared.task_facts)
        spent = state.seconds + time.monotonic() - began
        enough = self.chooser.rules.limit_reached(self.recorder.costs_so_far(), spent)
        on_test: dict[int, Row] = {}
        if enough or is_evaluated(self.experiment, state.round):
            context, on_test = self._evaluate(engine, context, state, arrivals)
        state = self.chooser.after_round(state, context, self.recorder.history, enough)
        if self._is_over(state):
            on_test |= self._evaluate_end(engine, context, state)
        if clients_are_evaluated(self.experiment, state.round) or state.stopped:
            self._evaluate_clients(engine, context, state, on_test)
        seconds = time.monotonic() - began
        if state.round == 1:  # the clients of round 1 were selected when the run was prepared
            seconds += self.planner.selection_seconds(1)
        self.recorder.add_timing(state.round, seconds, started)
        self.state = replace(state, seconds=state.seconds + seconds)
        if time.monotonic() - self.saved >= self.experiment.checkpoint.seconds:
            self.save()
        request = self.callback.on_round_end(context)
        if request is not None and not self.finished:
            if context.row is None:
                context, on_test = self._evaluate(engine, context, self.state, arrivals)
            state = replace(self.state, stopped=request.reason)
            on_test |= self._evaluate_end(engine, context, state)
            self._evaluate_clients(engine, context, state, on_test)
            self.state = state

    def _evaluate(
        self, engine: Engine, context: RoundContext, state: RunState, arrivals: Sequence[Arrival]
    ) -> tuple[RoundContext, dict[int, Row]]:
        """Evaluate the model of a round, or every client's own if these are what the method is judged by."""
        began = time.monotonic()
        evaluated = self.evaluator.evaluate(engine, context, mean_loss(arrivals), self._judged_models(state))
        self.evaluation_seconds += time.monotonic() - began
        return evaluated

    def _evaluate_end(self, engine: Engine, context: RoundContext, state: RunState) -> dict[int, Row]:
        """Evaluate the end of a run on all samples, where other evaluations are on a subset of them."""
        if not self.prepared.evaluation_subset:
            return {}
        best = self._best(state, context.model)
        return self.evaluator.evaluate_end(engine, context, best, self._judged_models(state))

    def _judged_models(self, state: RunState) -> OwnModels:
        """Every client's own model, if these are what the method is judged by."""
        judged_alone = self.prepared.phase(state.round).route.evaluates_own_models
        return self.server.own_models(state) if judged_alone else NO_MODELS

    def _evaluate_clients(
        self, engine: Engine, context: RoundContext, state: RunState, on_test: Mapping[int, Row]
    ) -> None:
        """Evaluate single clients, if they are evaluated at all."""
        if self.experiment.eval.per_client:
            models = self.server.own_models(state) or context.model.weights
            self.client_evaluations.evaluate(engine, state.round, models, on_test, final=self._is_over(state))

    @property
    def finished(self) -> bool:
        """Whether all rounds are done, or the run was stopped before."""
        return self._is_over(self.state)

    def _is_over(self, state: RunState) -> bool:
        return bool(state.stopped) or state.round >= self.experiment.rounds

    @property
    def paused(self) -> bool:
        """Whether the run was to go on no further than this."""
        history = self.recorder.history
        return self.pause is not None and bool(history) and self.pause(history[-1])

    def save(self) -> None:
        """Write a checkpoint: client state first, then the checkpoint that refers to it."""
        if self.folder:
            self.client_states.commit(self.state.round)
            self.folder.save(self.state, self.client_states.file_names)
            self.client_states.delete_outdated(self.state.round)
        self.saved = time.monotonic()

    def _engine_of_phase(self) -> tuple[Engine, RunState]:
        """The engine of the next round; a new phase starts with a new engine and nothing but the model."""
        state, new_phase = self.state, self.state.round + 1 == self.prepared.phase(self.state.round + 1).first
        if self.engine is None or new_phase:
            if self.engine is not None:
                self.engine.close()
            self.engine = start_engine(self.prepared.job(state.round + 1), self.experiment, self.client_states)
        if new_phase:
            state = replace(state, server={}, waiting={})
            self.client_states.clear()
        return self.engine, state

    def _model(self, state: RunState) -> CurrentModel:
        return CurrentModel(partial(self.server.current_model, state), self.prepared.state_dict)

    def _result(self) -> Result:
        model = self._model(self.state)
        return self.recorder.result(self.state, model.weights, self._best(self.state, model))

    def _best(self, state: RunState, model: CurrentModel) -> BestSoFar | None:
        """The best model so far; the last evaluation counts, whether `eval.every` divides its round or not."""
        history = self.recorder.history
        if not history or history[-1]["round"] != state.round:
            return state.best
        return self.chooser.better(state.best, history[-1], model)

    def close(self) -> None:
        """Close the engine and the client states."""
        if self.engine is not None:
            self.engine.close()
        self.client_states.close()


@errors_in_own_part()
def run_experiment(
    experiment: Experiment,
    *,
    federation: OwnData | None = None,
    module: OwnModel | None = None,
    task: Task | None = None,
    callbacks: Callbacks | None = None,
    pause: PauseRule | None = None,
) -> Result:
    """Run an experiment from the start, in a new run folder where `out` is given; `pause` needs a folder."""
    callback = as_callback(callbacks)
    if experiment.out is not None:
        RunFolder.check(experiment.out)  # before clients train for their profiles
    check_within_reach(experiment)
    if experiment.withdrawn and experiment.data_at_nodes:
        raise SpecError(
            "withdrawn: a node leaves a run with 'fedrelay resume RUN --without NODE'; to leave it out from the start, "
            "remove its key from the folder 'nodes'"
        )
    run = prepare(
        experiment,
        federation=federation,
        module=module,
        task=task,
        on_profiling_progress=callback.on_profiling_progress,
    )
    prepared = run.prepared
    if experiment.out is None:
        return run_prepared(run, callbacks=callback)
    facts = {
        "data_fingerprint": prepared.federation.fingerprint(),
        "own_data": federation is not None,
        "own_model": module is not None,
        "own_weights": isinstance(module, nn.Module),
        "own_task": task is not None,
        "training": prepared.method.training,
        "task": prepared.task_facts.as_dict(),
        "tensors": prepared.layout.shapes,
        "frozen_sha256": prepared.frozen_sha256,
        "sources": source_digests(prepared.user_modules()),
        "options": build_method(prepared.experiment).options,  # of the spec as it is saved, with absolute paths
    }
    folder = RunFolder.create(experiment.out, prepared.experiment, facts, plan_summary(run), setup_files(prepared))
    try:
        state = first_state(run)
        folder.save(state)
        return RoundLoop(run, state, folder, callback, pause=pause).run()
    finally:
        folder.close()


@errors_in_own_part()
def run_prepared(run: PreparedRun, *, callbacks: Callbacks | None = None, tap: HopTap | None = None) -> Result:
    """Run what was prepared from the start, without a run folder."""
    return RoundLoop(run, first_state(run), None, as_callback(callbacks), tap).run()


@errors_in_own_part()
def resume_run(
    path: Path,
    *,
    rounds: int | None = None,
    without: Sequence[str] = (),
    federation: OwnData | None = None,
    module: OwnModel | None = None,
    task: Task | None = None,
    callbacks: Callbacks | None = None,
    pause: PauseRule | None = None,
) -> Result:
    """Continue a run from its last checkpoint; a complete run is only read, unless it gets more `rounds`.

    Clients named in `without` have left for good: the run goes on without them.
    """
    folder = RunFolder.open(path)
    try:
        given = {"data": federation, "model": module, "task": task}
        check_unsaved_inputs(path, folder.facts, "continue it with fedrelay.resume", given, RunFolderError)
        warn_about_other_versions(str(path), folder.facts.get("versions", {}))
        warn_about_other_sources(str(path), folder.facts.get("sources", {}))
        experiment = _without_clients(folder, without, rounds)
        run = prepare(
            experiment,
            federation=federation,
            module=module,
            task=task,
            groups=folder.groups or None,
            profiling=folder.profiling(PROFILES),
            selection=folder.profiling(SELECTION),
        )
        prepared = run.prepared
        if prepared.federation.fingerprint() != folder.facts.get("data_fingerprint"):
            raise RunFolderError(f"{path}: the data are not those the run was started with")
        _check_same_tensors(path, folder.facts.get("tensors"), prepared.layout.shapes)
        if prepared.frozen_sha256 != folder.facts.get("frozen_sha256"):
            raise RunFolderError(f"{path}: the model's frozen parameters are not those the run was started with")
        if folder.result is None or rounds is not None:
            refuse_other_options(str(path), folder.facts.get("options", {}), prepared.method.options)
        state = _restored(folder, prepared.experiment)
        if state is None:
            state = first_state(run)
        if state.weights.shape != (prepared.layout.size,) or state.weights.dtype != prepared.layout.dtype:
            raise RunFolderError(f"{path}: the checkpoint does not fit the model of spec.yaml")
        if experiment != folder.experiment:
            folder.extend(experiment, state)
        if rounds is not None:
            run, state = _extend(run, state, folder, rounds)
        return RoundLoop(run, state, folder, as_callback(callbacks), pause=pause).run()
    finally:
        folder.close()


def _without_clients(folder: RunFolder, names: Sequence[str], rounds: int | None) -> Experiment:
    """The experiment of a run that goes on without some clients; for those that have left before, nothing changes."""
    experiment = folder.experiment
    leaving = {name: folder.saved_round for name in names if name not in experiment.withdrawn}
    if leaving and folder.result is not None and rounds is None:
        raise SpecError(f"without: {folder.path} is complete; give a larger number of rounds to go on without a client")
    return experiment.model_copy(update={"withdrawn": {**experiment.withdrawn, **leaving}})


def _check_same_tensors(path: Path, saved: Any, found: Mapping[str, list[int]]) -> None:
    """Check that a model has the tensors of the run, in the same order: its weights are saved as one flat tensor."""
    if saved is None:  # an earlier version wrote the run
        return
    if not isinstance(saved, dict):
        raise RunFolderError(f"{path / 'run.json'}: is damaged (the tensors of the model cannot be read)")
    for before, now in zip_longest(saved.items(), found.items()):
        if before != now:
            had, has = (f"{each[0]} {each[1]}" if each else "no tensor" for each in (before, now))
            raise RunFolderError(
                f"{path}: the model does not fit the model of the run, which has {had}; this has {has}"
            )


def _extend(run: PreparedRun, state: RunState, folder: RunFolder, rounds: int) -> tuple[PreparedRun, RunState]:
    """The run with another number of rounds, in its folder too; a run that was stopped goes on."""
    if isinstance(rounds, bool) or not isinstance(rounds, int):
        raise SpecError(f"rounds: must be a whole number, got {rounds!r}")
    if rounds == run.prepared.experiment.rounds and not state.stopped:
        return run, state
    if rounds <= state.round:
        raise SpecError(f"rounds: {state.round} rounds of {folder.path} are done; must be more than that, got {rounds}")
    history, rules = folder.lines("metrics"), BestAndStop(run.prepared).rules
    if history and (enough := rules.limit_reached(history[-1], state.seconds) or rules.target_reached(history)):
        raise SpecError(f"rounds: more of them do not help, the run would stop again ({enough}); start a new run")
    longer = extended(run, rounds, state.round)
    folder.extend(folder.experiment.model_copy(update={"rounds": rounds}), state)
    return longer, _restored(folder, longer.prepared.experiment) or first_state(longer)


def _restored(folder: RunFolder, experiment: Experiment) -> RunState | None:
    """The state of the newest checkpoint; None if there is none."""
    return folder.restore(partial(is_evaluated, experiment), partial(clients_are_evaluated, experiment))


def _final_models(result: Result) -> dict[str, Mapping[str, Tensor]]:
    """File name → model, of a complete run."""
    best = {} if result.best_found is None else {"best.safetensors": result.best_found.state_dict}
    return {"model.safetensors": result.model, **best}


def first_state(run: PreparedRun) -> RunState:
    """The state before the first round."""
    prepared, typical = run.prepared, NO_HOPS_YET
    weights = prepared.layout.flatten(prepared.module)
    if prepared.experiment.guard.needs_typical_hop:  # before the first hop, an update is as long as the model itself
        typical = TypicalHop(float(torch.linalg.vector_norm(weights[: prepared.layout.trained_size])))
    return RunState(0, weights, prepared.profiling_seconds, typical_hop=typical)


def is_evaluated(experiment: Experiment, round: int) -> bool:
    """Whether a round is evaluated: every `eval.every` rounds, and the last one."""
    return round % experiment.eval.every == 0 or round == experiment.rounds
