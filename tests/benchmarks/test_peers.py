"""The benchmark against peers: its arithmetic, its workload and its processes. No peer is needed."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from fedrelay.models.flat_layout import FlatLayout
from fedrelay.models.zoo import build_model

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def load(name: str) -> ModuleType:
    """A module of the benchmark, which is no package of ours."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCHMARKS))


table, workload, processes = (load(f"peers.{name}") for name in ("table", "workload", "processes"))
load("real_networks")  # which the command imports


@pytest.fixture(scope="module")
def peers() -> ModuleType:
    """The command itself."""
    spec = importlib.util.spec_from_file_location("peers_command", BENCHMARKS / "peers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["peers_command"] = module
    spec.loader.exec_module(module)
    return module


def test_ratios_are_taken_within_repetitions() -> None:
    assert table.ratios([8.0, 6.0], [2.0, 3.0]) == [4.0, 2.0]


def test_ratios_of_a_peer_that_dropped_out_use_what_there_is() -> None:
    assert table.ratios([8.0], [2.0, 3.0]) == [4.0]


def test_goal_takes_the_median_of_ratios_and_their_spread() -> None:
    goal = table.Goal("x", "conv", ("peer",), 3.0)
    times = {("peer", "conv"): [8.0, 6.0, 9.0], ("FedRelay", "conv"): [2.0, 3.0, 3.0]}
    spread = goal.measured(times)
    assert spread == table.Spread(3.0, 2.0, 4.0)
    assert goal.verdict(spread)
    assert goal.row(times) == ("x", "≥ 3×", "3× (2–4)", "met")


def test_goal_just_missed() -> None:
    times = {("peer", "conv"): [2.99], ("FedRelay", "conv"): [1.0]}
    assert table.Goal("x", "conv", ("peer",), 3.0).row(times) == ("x", "≥ 3×", "2.99× (2.99–2.99)", "**not met**")


def test_the_fastest_variant_of_a_peer_counts() -> None:
    times = {("slow", "conv"): [9.0, 9.0], ("fast", "conv"): [4.0, 6.0], ("FedRelay", "conv"): [2.0, 2.0]}
    assert table.Goal("x", "conv", ("slow", "fast"), 3.0).measured(times) == table.Spread(2.5, 2.0, 3.0)


def test_goal_is_not_decided_without_all_variants_of_a_peer() -> None:
    times = {("slow", "conv"): [9.0], ("FedRelay", "conv"): [2.0]}
    assert table.Goal("x", "conv", ("slow", "fast"), 3.0).measured(times) is None


def test_goal_nobody_measured() -> None:
    goal = table.Goal("x", "conv", ("peer",), 3.0)
    assert goal.row({("FedRelay", "conv"): [1.0]}) == ("x", "≥ 3×", "not measured", "—")
    assert goal.row({("peer", "conv"): [1.0]})[2] == "not measured"


def test_share_must_stay_below_its_bound() -> None:
    goal = table.Goal("x", "conv", (table.HANDOVER,), 0.02, than=None)
    low, high = ({(table.HANDOVER, "conv"): [value]} for value in (0.0199, 0.0201))
    assert goal.row(low) == ("x", "≤ 2 %", "1.99 % (1.99–1.99)", "met")
    assert goal.row(high)[3] == "**not met**"


def test_what_the_machine_itself_gains_is_not_judged() -> None:
    goal = table.Goal("machine", "conv", (table.BARE_ONE,), None, than=table.BARE)
    times = {(table.BARE_ONE, "conv"): [0.012], (table.BARE, "conv"): [0.008]}
    assert goal.row(times) == ("machine", "", "1.5× (1.5–1.5)", "")


def test_times_are_milliseconds_and_the_handover_is_no_framework() -> None:
    times = {("A", "conv"): [0.001, 0.003, 0.002], ("B", "dense"): [1.25], (table.HANDOVER, "conv"): [0.1]}
    assert table.times_table(times, {"conv": "Conv", "dense": "Dense"}).splitlines() == [
        "| ms per client update | Conv | Dense |",
        "| --- | --- | --- |",
        "| A | 2 (1–3) |  |",
        "| B |  | 1250 (1250–1250) |",
    ]


def test_every_goal_names_contenders_that_are_measured(peers: ModuleType) -> None:
    timed = {(each.name, case) for each in peers.PROGRAMS for case in each.rounds} | {(table.HANDOVER, "conv")}
    for goal in table.GOALS:
        assert {(name, goal.case) for name in (*goal.others, *([goal.than] if goal.than else []))} <= timed


def test_every_contender_has_its_script(peers: ModuleType) -> None:
    for contender in peers.PROGRAMS:
        assert (peers.SCRIPTS / contender.script).is_file()
        assert set(contender.rounds) <= set(workload.CASES)


@pytest.mark.parametrize("name", ["conv", "dense"])
def test_workload_is_always_the_same(name: str) -> None:
    case = workload.CASES[name]
    torch.manual_seed(123)
    before = torch.random.get_rng_state()
    first = case.fingerprint()
    torch.manual_seed(321)
    assert case.fingerprint() == first
    torch.manual_seed(123)
    case.model()
    assert torch.equal(torch.random.get_rng_state(), before)  # nobody else's randomness is touched
    x, y = case.data()
    assert x.shape == (100, 100, *case.shape)
    assert np.unique(y.numpy()).tolist() == list(range(10))


def test_cases_differ_in_their_work() -> None:
    assert workload.CASES["conv"].fingerprint() != workload.CASES["dense"].fingerprint()
    assert workload.CASES["dense-100"].fingerprint() == workload.CASES["dense"].fingerprint()


@pytest.mark.parametrize(("name", "model"), [("conv", "cnn-s"), ("dense", "mlp")])
def test_models_are_those_of_the_zoo(name: str, model: str) -> None:
    case = workload.CASES[name]
    kind = "image" if len(case.shape) == 3 else "tabular"
    zoo = FlatLayout.of(build_model(model, case.shape, 10, kind=kind))
    assert [entry.shape for entry in FlatLayout.of(case.model()).entries] == [entry.shape for entry in zoo.entries]


def test_local_pass_takes_five_steps_and_learns() -> None:
    case = workload.CASES["dense"]
    model, (x, y) = case.model(), case.data()
    seen: list[int] = []
    model.register_forward_hook(lambda module, inputs, outputs: seen.append(len(outputs)))
    with torch.random.fork_rng(devices=[]):
        assert workload.local_pass(model, x[0], y[0]) == 5
    assert seen == [20] * 5
    assert case.loss(model) < case.loss(case.model())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--repeats", "0"], "argument --repeats: must be a positive whole number, got '0'"),
        (["--repeats", "many"], "argument --repeats: must be a positive whole number, got 'many'"),
        (["--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_wrong_arguments(peers: ModuleType, capsys: pytest.CaptureFixture[str], given: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as stop:
        peers.arguments(given)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_page_is_written_only_when_asked(peers: ModuleType) -> None:
    assert peers.arguments([]).write is None
    assert peers.arguments(["--write"]).write == BENCHMARKS.parent / "docs" / "peers.md"
    assert peers.arguments(["--write", "x.md"]).write == Path("x.md")


def test_page_shows_verdicts_and_versions(peers: ModuleType) -> None:
    race = peers.Race(repeats=2, quick=True)
    race.times = {("FedRelay", "conv"): [0.01, 0.02], ("Flower", "conv"): [0.05, 0.07]}
    page = peers.page(race, {"torch": "2.0"}, "| network |")
    assert "| convolutional: Flower / FedRelay | ≥ 4× | 4.25× (3.5–5) | met |" in page
    assert "- software: torch 2.0\n- repetitions: 2, quick" in page


def test_command_prints_the_page_and_writes_it(
    peers: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = {"seconds": 0.002, "work": "a", "loss": 1.0, "handover": 0.01}
    monkeypatch.setattr(peers, "measure", lambda command: found)
    monkeypatch.setattr(peers, "entered", lambda wanted, versions: iter(()))
    monkeypatch.setattr(peers, "own_versions", lambda: {"torch": "2.0"})
    monkeypatch.setattr(
        peers, "table_of_networks", lambda networks, turns: f"| {len(networks)} networks, {turns} turns |"
    )
    monkeypatch.setattr(peers.signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(sys, "argv", ["peers.py", "--quick", "--write", str(tmp_path / "peers.md")])
    peers.main()
    page = (tmp_path / "peers.md").read_text()
    assert page.endswith("| 5 networks, 2 turns |\n")
    assert capsys.readouterr().out == page + "\n"
    assert "| FedSeq, convolutional: handover as a share of a hop | ≤ 2 % | 1 % (1–1) | met |" in page
    assert "| convolutional: Flower / FedRelay | ≥ 4× | not measured | — |" in page


def test_contender_that_does_other_work_is_refused(peers: ModuleType) -> None:
    race = peers.Race(repeats=1, quick=True)
    race.check("conv", {"work": "a", "loss": 2.0})
    race.check("conv", {"work": "a", "loss": 2.01})
    race.check("conv", {"work": "a"})
    with pytest.raises(processes.ContenderError, match="other data"):
        race.check("conv", {"work": "b"})
    with pytest.raises(processes.ContenderError, match=r"a loss of 2\.1000 instead of 2\.0000"):
        race.check("conv", {"work": "a", "loss": 2.1})


def test_measurement_is_found_among_other_output() -> None:
    output = 'hello\n{"seconds": 1.5}\n{"other": 1}\n3\nbye\n'
    assert processes.result_in(output) == {"seconds": 1.5}
    with pytest.raises(processes.ContenderError, match="printed no measurement, but 'bye'"):
        processes.result_in("hello\nbye\n\n")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("Traceback:\n  raise\nValueError: bad port\n======\n\n", "ValueError: bad port"),
        ("one\ntwo\n-----\n", "two"),
        ("\n", "nothing"),
    ],
)
def test_reason_of_a_failure(output: str, reason: str) -> None:
    assert processes.reason_in(output) == reason


def test_contender_gets_a_second_chance(peers: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = iter([processes.ContenderError("port taken"), {"seconds": 1.0, "work": "a"}])

    def measure(command: list[str]) -> dict[str, object]:
        outcome = next(tries)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(peers, "measure", measure)
    race = peers.Race(repeats=1, quick=True)
    flower = next(each for each in peers.PROGRAMS if each.name == "Flower")
    race.turn("conv", flower)
    assert race.times == {("Flower", "conv"): [1.0]}
    assert not race.out


def test_peer_that_fails_drops_out_and_the_page_says_so(peers: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(command: list[str]) -> dict[str, object]:
        raise processes.ContenderError("no luck")

    monkeypatch.setattr(peers, "measure", measure)
    race = peers.Race(repeats=1, quick=True)
    by_name = {each.name: each for each in peers.PROGRAMS}
    race.turn("conv", by_name["Flower"])
    assert "- dropped out: Flower (conv: no luck)\n" in peers.page(race, {}, "")
    with pytest.raises(SystemExit, match="FedRelay, conv: no luck"):
        race.turn("conv", by_name["FedRelay"])


def test_failure_of_a_contender_says_why() -> None:
    with pytest.raises(processes.ContenderError, match="exit code 3: no luck"):
        processes.measure([sys.executable, "-c", "import sys; print('no luck', file=sys.stderr); sys.exit(3)"])


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_nothing_is_left_running(tmp_path: Path) -> None:
    script = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True,
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
print('{{"seconds": 1.0}}')
"""
    assert processes.measure([sys.executable, "-c", script]) == {"seconds": 1.0}
    assert gone(int((tmp_path / "pid").read_text()))


def gone(process: int) -> bool:
    """Whether a process has ended, or will in a moment."""
    for _ in range(100):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        if "Z" in Path(f"/proc/{process}/stat").read_text().split(")")[1][:3]:
            return True
        time.sleep(0.05)
    return False


def test_script_refuses_an_unknown_case(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["bare.py", "tabular", "3"])
    with pytest.raises(SystemExit):
        workload.task()
    assert "argument case: invalid choice: 'tabular'" in capsys.readouterr().err


def test_smoke_checks_the_loss_of_a_network_that_has_learnt(peers: ModuleType) -> None:
    case = workload.CASES["dense"]
    assert case.loss(case.model()) == pytest.approx(2.43, rel=0.01)
    assert peers.SMOKE_LOSS < 2


def test_a_copy_runs_a_script_as_an_interpreter_would(tmp_path: Path) -> None:
    script = tmp_path / "own.py"
    script.write_text(
        "import json, os, sys\nprint(json.dumps({'seconds': 1, 'words': sys.argv[1:], 'path': sys.path}))\n"
    )
    here = Path.cwd()
    found = processes.measure_in_copy(script, ["dense", "2"])
    assert found["words"] == ["dense", "2"]
    assert found["path"][0] == str(tmp_path)
    assert str(tmp_path.parent) not in found["path"]
    assert Path.cwd() == here


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import sys\nprint('no luck', file=sys.stderr)\nsys.exit(3)", "exit code 3: no luck"),
        ("raise ValueError('no data')", "exit code 1: ValueError: no data"),
        ("print('done')", "printed no measurement, but 'done'"),
    ],
)
def test_a_script_that_fails_in_a_copy_says_why(tmp_path: Path, source: str, reason: str) -> None:
    script = tmp_path / "own.py"
    script.write_text(source)
    with pytest.raises(processes.ContenderError, match=reason):
        processes.measure_in_copy(script, [])
