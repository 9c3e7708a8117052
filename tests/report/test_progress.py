from __future__ import annotations

import io
import re

import pytest
import torch
from rich.console import Console

from fedrelay.experiment.spec import experiment
from fedrelay.report import progress
from fedrelay.report.progress import watching, watching_profiles
from fedrelay.runtime.callback import Callback, RoundContext
from fedrelay.runtime.result import Result


def end_round(callback, spec, round, row):
    callback.on_round_end(RoundContext(spec, round, None, row, None))


def result(spec, rounds, accuracy, stopped=""):
    counts = {"client_updates": 0, "longest_route": 0, "transfers": {}, "bytes": 0, "seconds": 0.0}
    history = [{"round": rounds, "accuracy": accuracy}]
    return Result(spec, history, torch.zeros(0), {}, rounds, **counts, stopped=stopped)


def watch(rounds, *, terminal, titles=(), start=0, every=1, stop=None, console=None):
    """What is shown of runs that start after `start` rounds and, where `stop` is given, are stopped after it."""
    console = console or Console(file=io.StringIO(), force_terminal=terminal, width=80)
    announced = []
    with watching(console, titles, announced.append) as callback:
        for _ in titles or [None]:
            spec = experiment("fedavg", rounds=rounds)
            done = start if start == stop else stop or rounds
            if start < done:
                callback.on_run_start(spec, start)
            for number in range(start + 1, done + 1):
                end_round(callback, spec, number, {"accuracy": number / rounds} if number % every == 0 else None)
            callback.on_run_end(result(spec, done, done / rounds, "enough is enough" if stop else ""))
    assert len(announced) == 1
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())


@pytest.mark.parametrize("rounds", [1, 2, 9, 10, 11, 100, 1005])
def test_a_log_gets_at_most_ten_lines_a_run(monkeypatch, rounds):
    monkeypatch.setattr(progress, "LEAST_SECONDS", 0)
    lines = watch(rounds, terminal=False).splitlines()
    assert len(lines) <= 11
    assert lines[-1].startswith(f"  fedavg: round {rounds}/{rounds}, accuracy 100.0 %, done in")
    assert all(" left" in line for line in lines[:-1])


def test_a_fast_run_says_only_how_it_ended():
    assert len(watch(100, terminal=False).splitlines()) == 1


def test_a_log_remembers_the_last_evaluation(monkeypatch):
    monkeypatch.setattr(progress, "LEAST_SECONDS", 0)
    lines = watch(10, terminal=False, every=4).splitlines()
    assert "accuracy –" in lines[2]
    assert "accuracy 40.0 %" in lines[3]
    assert "accuracy 40.0 %" in lines[6]


def test_a_log_says_where_a_run_goes_on():
    assert watch(8, terminal=False, start=5).splitlines()[0] == "  fedavg: continues after round 5"
    assert watch(8, terminal=False, start=8) == "  fedavg: already complete\n"


def test_a_log_says_why_a_run_stopped_early():
    [line] = watch(8, terminal=False, stop=5).splitlines()
    assert re.fullmatch(r"  fedavg: round 5/8, accuracy 62\.5 %, done in \S+ s; stopped: enough is enough", line)
    assert watch(8, terminal=False, start=5, stop=5) == "  fedavg: already complete\n"
    assert re.search(r"a +62\.5 % +\d+\.\d s   stopped in round 5", watch(8, terminal=True, titles=["a", "b"], stop=5))


def test_a_terminal_gets_a_bar():
    text = watch(4, terminal=True)
    assert "fedavg" in text
    assert "round 4/4" in text
    assert "100.0 %" in text


def test_several_runs_leave_a_line_each():
    text = watch(2, terminal=True, titles=["fedavg, seed 1", "fedseq, seed 1"])
    assert re.search(r"fedavg, seed 1 +100\.0 % +\d+\.\d s", text)
    assert re.search(r"fedseq, seed 1 +100\.0 % +\d+\.\d s", text)


def profiled(terminal, clients=3):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
    with watching(console, ["fedseq"], lambda _: None) as callback:
        for done in range(1, clients + 1):
            callback.on_profiling_progress(done, clients)
        spec = experiment("fedseq", rounds=1)
        callback.on_run_start(spec, 0)
        end_round(callback, spec, 1, {"accuracy": 0.5})
        callback.on_run_end(result(spec, 1, 0.5))
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())


def test_a_log_says_that_clients_described_themselves(monkeypatch):
    lines = profiled(terminal=False).splitlines()
    assert lines[0] == "  profiling clients: 3/3"
    assert lines[1].startswith("  fedseq: round 1/1")
    monkeypatch.setattr(progress, "LEAST_SECONDS_OF_PROFILING", 0)
    assert profiled(terminal=False).splitlines()[:3] == [f"  profiling clients: {done}/3" for done in (1, 2, 3)]


def test_a_terminal_gets_a_bar_for_profiles_and_then_one_for_rounds():
    text = profiled(terminal=True)
    assert re.search(r"profiling clients .* client \d/3 .* Ctrl-C: stop", text)
    assert text.index("profiling clients") < text.index("round 1/1")
    assert text.rindex("profiling clients") < text.index("fedseq")


def test_profiles_alone_can_be_watched():
    console = Console(file=io.StringIO(), force_terminal=False, width=80)
    with watching_profiles(console) as watch:
        watch(2, 2)
    assert console.file.getvalue() == "  profiling clients: 2/2\n"


def test_quiet_is_silent():
    with watching(Console(quiet=True), [], lambda _: pytest.fail("announced")) as callback:
        assert isinstance(callback, Callback)


@pytest.mark.parametrize("terminal", [True, False])
def test_titles_are_shown_as_they_are(terminal):
    text = watch(2, terminal=terminal, titles=["fedavg [/old]", "[bold]fedavg"])
    assert "fedavg [/old]" in text
    assert "[bold]fedavg" in text


def test_a_stopping_run_keeps_its_title():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with watching(console, ["[/x]"], lambda _: None) as callback:
        callback.on_run_start(experiment("fedavg", rounds=2), 0)
        callback.on_interrupt()
    assert "[/x]: stopping after this round" in console.file.getvalue()
