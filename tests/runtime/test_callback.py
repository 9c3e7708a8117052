"""Callbacks may have any of the hooks; they see the round, add numbers to its row, and stop the run."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import fedrelay as fr
from fedrelay.runtime.callback import HOOKS, Callback, CombinedCallback, as_callback
from fedrelay.runtime.run_folder_reader import RunFolderReader

SMALL = {"data": "digits", "clients": 6, "rounds": 2, "fraction": 0.5, "model": "mlp", "workers": 1}


def test_a_subclass_overrides_the_hooks_it_needs():
    class Rounds(fr.Callback):
        seen: tuple[int, ...] = ()

        def on_round_end(self, context):
            self.seen += (context.round,)

    callback = Rounds()
    fr.run("fedavg", **SMALL, callbacks=callback)
    assert callback.seen == (1, 2)


def test_any_object_with_some_of_the_hooks_will_do():
    class Starts:
        def __init__(self):
            self.seen = []

        def on_run_start(self, experiment, round):
            self.seen.append((experiment.method, round))

    first, second = Starts(), Starts()
    fr.run("fedavg", **SMALL, callbacks=[first, second])
    assert first.seen == second.seen == [("fedavg", 0)]


def test_an_object_without_hooks_is_refused_before_the_run():
    class Old:
        def round_done(self, round, row):
            """A hook of older versions."""

    hooks = "on_profiling_progress, on_run_start, on_evaluation, on_round_end, on_interrupt, on_run_end"
    for given in (Old(), [Old()]):
        with pytest.raises(fr.SpecError, match=f"^callbacks: Old has none of the hooks {hooks}$"):
            fr.run("fedavg", **SMALL, callbacks=given)


def test_the_argument_has_a_new_name():
    with pytest.raises(fr.SpecError, match=r"^observer: this setting is now called callbacks$"):
        fr.run("fedavg", **SMALL, observer=Callback())


class Short(fr.Callback):
    def on_round_end(self):
        """The context is missing."""


class Long:
    def on_run_start(self, experiment, round, more):
        """One parameter too many."""


class Flag:
    on_interrupt = True


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (Short(), r"Short.on_round_end must be a method with the parameters \(context\), got \(\)"),
        (Long(), r"Long.on_run_start must be .* \(experiment, round\), got \(experiment, round, more\)"),
        (Flag(), r"Flag.on_interrupt must be a method with the parameters \(\), got True"),
    ],
)
def test_a_hook_with_other_parameters_is_refused_before_the_run(callback, message):
    with pytest.raises(fr.SpecError, match=f"^callbacks: {message}$"):
        fr.run("fedavg", **SMALL, callbacks=callback)


def test_a_hook_may_take_any_arguments():
    class Any:
        seen = 0

        def on_round_end(self, *arguments, more=None):
            self.seen += len(arguments)

    callback = Any()
    fr.run("fedavg", **SMALL, callbacks=callback)
    assert callback.seen == 2


def test_without_a_callback_all_hooks_do_nothing():
    callback = as_callback(None)
    assert isinstance(callback, CombinedCallback)
    assert all(callable(getattr(callback, hook)) for hook in HOOKS)
    assert {name for name in vars(Callback) if name.startswith("on_")} == set(HOOKS)


def test_the_context_has_the_row_the_plan_and_the_model():
    class Last(fr.Callback):
        def on_round_end(self, context):
            self.context = context

    last = Last()
    result = fr.run("fedseqinter", **{**SMALL, "rounds": 3}, **{"eval.every": 3, "route.period": 9}, callbacks=last)
    context = last.context
    assert (context.round, context.row) == (3, result.history[-1])
    assert context.experiment == result.experiment
    assert context.plan.round == 3
    assert not context.plan.merges  # models wait in slots: the current model is their mean
    assert context.state_dict.keys() == result.model.keys()
    assert all(torch.equal(context.state_dict[name], tensor) for name, tensor in result.model.items())


def test_the_model_is_built_only_where_it_is_used(monkeypatch):
    built = []
    monkeypatch.setattr("fedrelay.runtime.callback.CurrentModel.state_dict", property(lambda self: built.append(1)))

    class Rounds(fr.Callback):
        def on_round_end(self, context):
            if context.round == 2:
                context.state_dict  # noqa: B018

    fr.run("fedavg", **SMALL, callbacks=Rounds())
    assert len(built) == 1


class Extra(fr.Callback):
    """Adds what it is given to every row."""

    def __init__(self, found):
        self.found = found

    def on_evaluation(self, context):
        return self.found


def test_numbers_are_added_to_the_row(tmp_path):
    class Norm(fr.Callback):
        rows: tuple[dict[str, object], ...] = ()

        def on_evaluation(self, context):
            norm = torch.cat([tensor.flatten() for tensor in context.state_dict.values()]).norm()
            return {"norm": norm, "clients": np.float32(0.5), "count": 3, "unknown": None}

        def on_round_end(self, context):
            self.rows += (context.row,)

    norm = Norm()
    result = fr.run("fedavg", **SMALL, callbacks=[norm, Extra({"more": 1.5})], out=tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert list(norm.rows) == result.history == rows == RunFolderReader(tmp_path / "run").lines("metrics")
    last = result.history[-1]
    assert last["norm"] == pytest.approx(float(result.weights.norm()))
    assert (last["clients"], last["count"], last["unknown"], last["more"]) == (0.5, 3, None, 1.5)
    plain = fr.run("fedavg", **SMALL)
    assert result.weights_sha256 == plain.weights_sha256
    assert plain.history[-1].items() <= last.items()


def test_a_callback_cannot_change_the_row_itself():
    class Vandal(fr.Callback):
        def on_evaluation(self, context):
            context.row["accuracy"] = 2.0

        def on_round_end(self, context):
            context.row["accuracy"] = 3.0

    assert fr.run("fedavg", **SMALL, callbacks=Vandal()).history == fr.run("fedavg", **SMALL).history


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([1.0], "TypeError: must return a mapping of names to numbers, or None, got list"),
        ({"accuracy": 1.0}, "ValueError: 'accuracy' is in the row already"),
        ({"bytes": 1.0}, "ValueError: 'bytes' is in the row already"),
        ({1: 1.0}, "TypeError: names must be text, got 1"),
        ({"": 1.0}, "TypeError: names must be text, got ''"),
        ({"x": "high"}, "TypeError: 'x' must be a number or None, got str"),
        ({"x": True}, "TypeError: 'x' must be a number or None, got bool"),
        ({"x": float("nan")}, "ValueError: 'x' must be finite or None, got nan"),
        ({"x": torch.ones(2)}, "ValueError: only one element tensors can be converted"),
    ],
)
def test_numbers_that_do_not_fit_are_one_line(found, message):
    with pytest.raises(fr.SpecError) as refused:
        fr.run("fedavg", **SMALL, callbacks=Extra(found))
    assert str(refused.value).startswith(f"callback 'Extra', on_evaluation: {message}")
    assert "\n" not in str(refused.value)


def test_two_callbacks_cannot_add_the_same_name():
    with pytest.raises(fr.SpecError, match="'mine' is in the row already"):
        fr.run("fedavg", **SMALL, callbacks=[Extra({"mine": 1}), Extra({"mine": 2})])


class Stops(fr.Callback):
    """Asks to stop after a round, by returning or by raising."""

    def __init__(self, after, raises=False):
        self.after, self.raises, self.ended = after, raises, []

    def on_round_end(self, context):
        request = fr.StopRun("seen\n enough")
        if context.round < self.after:
            return None
        if self.raises:
            raise request
        return request

    def on_run_end(self, result):
        self.ended.append(result.rounds)


@pytest.mark.parametrize("raises", [True, False])
def test_a_callback_stops_a_run(tmp_path, raises):
    out, stops, second = tmp_path / "run", Stops(3, raises), Stops(3)
    result = fr.run("fedavg", **{**SMALL, "rounds": 9}, every=2, out=out, callbacks=[stops, second])
    assert result.complete
    assert (result.rounds, result.stopped) == (3, "seen enough")
    assert [row["round"] for row in result.history] == [2, 3]  # the last round is evaluated, wherever it is
    assert stops.ended == second.ended == [3]
    assert json.loads((out / "result.json").read_bytes())["stopped"] == "seen enough"
    assert result.weights_sha256 == fr.run("fedavg", **{**SMALL, "rounds": 3}).weights_sha256
    again = fr.resume(out)  # it is complete: nothing is done
    assert (again.rounds, again.stopped, again.history) == (3, "seen enough", result.history)


def test_a_stop_that_was_not_saved_is_asked_for_again(tmp_path):
    class Killed(Stops):
        def on_round_end(self, context):
            request = super().on_round_end(context)
            if request is not None:
                raise KeyboardInterrupt
            return request

    out, settings = tmp_path / "run", {**SMALL, "rounds": 9, "every": 2, "checkpoint": {"seconds": 0}}
    with pytest.raises(KeyboardInterrupt):
        fr.run("fedavg", **settings, out=out, callbacks=Killed(3))
    assert fr.resume(out, callbacks=Stops(5)).rounds == 5


def test_a_row_that_was_written_after_the_last_checkpoint_is_dropped(tmp_path, monkeypatch):
    """The run dies between the evaluation of the round in which it was stopped and the checkpoint that says so."""
    out, settings = tmp_path / "run", {**SMALL, "rounds": 5, "every": 2, "checkpoint": {"seconds": 0}}
    saves = []

    def save(self, *_):
        saves.append(self)
        if len(saves) == 5:  # before round 1, after rounds 1 to 3, at the end
            raise KeyboardInterrupt
        return written(self, *_)

    written = fr.runtime.run_folder.RunFolder.save
    monkeypatch.setattr("fedrelay.runtime.run_folder.RunFolder.save", save)
    with pytest.raises(KeyboardInterrupt):
        fr.run("fedavg", **settings, out=out, callbacks=Stops(3))
    assert [row["round"] for row in RunFolderReader(out).lines("metrics")] == [2, 3]
    monkeypatch.undo()
    resumed, whole = fr.resume(out), fr.run("fedavg", **settings)
    assert resumed.history == whole.history
    assert resumed.weights_sha256 == whole.weights_sha256


def test_the_last_round_is_no_early_stop():
    result = fr.run("fedavg", **SMALL, callbacks=Stops(2))
    assert (result.rounds, result.stopped, result.complete) == (2, "", True)


@pytest.mark.parametrize("hook", ["on_run_start", "on_evaluation", "on_round_end", "on_run_end"])
def test_mistakes_in_a_hook_are_one_line(hook):
    kind = type("Wrong", (), {hook: lambda self, *_: {}["missing"]})
    with pytest.raises(fr.SpecError, match=f"^callback 'Wrong', {hook}: KeyError: 'missing' ") as refused:
        fr.run("fedavg", **SMALL, callbacks=kind())
    assert isinstance(refused.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("hook", "found", "message"),
    [
        ("on_round_end", "enough", "TypeError: must return None or StopRun(reason), got str"),
        ("on_round_end", True, "TypeError: must return None or StopRun(reason), got bool"),
        ("on_evaluation", fr.StopRun("enough"), "TypeError: must return a mapping"),
    ],
)
def test_other_requests_are_refused(hook, found, message):
    kind = type("Wrong", (fr.Callback,), {hook: lambda self, context: found})
    with pytest.raises(fr.SpecError) as refused:
        fr.run("fedavg", **SMALL, callbacks=kind())
    assert str(refused.value).startswith(f"callback 'Wrong', {hook}: {message}")


def test_a_request_is_raised_at_the_end_of_a_round_and_has_a_reason():
    class Early(fr.Callback):
        def on_evaluation(self, context):
            raise fr.StopRun("enough")

    with pytest.raises(fr.SpecError, match="on_evaluation: TypeError: StopRun is for on_round_end only"):
        fr.run("fedavg", **SMALL, callbacks=Early())
    with pytest.raises(ValueError, match="StopRun needs a reason"):
        fr.StopRun(" \n")


def test_callbacks_hear_of_runs_that_were_complete(tmp_path):
    class Heard(fr.Callback):
        def __init__(self):
            self.calls = []

        def on_run_start(self, experiment, round):
            self.calls.append(("start", round))

        def on_run_end(self, result):
            self.calls.append(("end", result.rounds))

    first, second = Heard(), Heard()
    fr.run("fedavg", **SMALL, out=tmp_path / "run", callbacks=first)
    fr.resume(tmp_path / "run", callbacks=second)
    assert first.calls == [("start", 0), ("end", 2)]
    assert second.calls == [("end", 2)]
