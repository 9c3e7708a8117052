from __future__ import annotations

import json
import sys

import pytest

from fedrelay.data.registry import DATASETS
from fedrelay.experiment.method_catalogue import METHODS
from fedrelay.report.format import finite

COMMANDS = [
    [],
    ["run"],
    ["compare"],
    ["resume"],
    ["show"],
    ["plan"],
    ["methods"],
    ["methods", "show"],
    ["data"],
    ["data", "show"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_has_examples(program, command):
    ended = program(*command, "--help")
    assert ended.code == 0
    assert "Usage: fedrelay" in ended.out
    assert "Examples" in ended.out
    assert "$ fedrelay" in ended.out


def test_the_bare_program_shows_its_help(program):
    assert program().out == program("--help").out


def test_version(program):
    ended = program("--version")
    assert ended.code == 0
    assert ended.out.startswith("fedrelay 0.")


def test_methods_lists_the_whole_catalogue(program):
    ended = program("methods")
    assert ended.code == 0
    for name in METHODS:
        assert f" {name} " in ended.out
    assert "term prox" in ended.out
    assert "route, grouping" in ended.out


def test_methods_show_gives_options_as_they_are_typed(program):
    ended = program("methods", "show", "fedseq+fedprox")
    assert ended.code == 0
    for option in ("route.loops=1", "grouping.max_clients=11", "terms.prox.mu=0.01", "merge.weights=samples"):
        assert f"--set {option}" in ended.out
    for word in ("Paper: R. Zaccone", "Rule: the loss gains", "Deviations: "):
        assert word in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80


def test_the_options_shown_can_be_used(program, tiny):
    shown = program("methods", "show", "fedseq+fedprox").out
    options = [line.split()[:2] for line in shown.splitlines() if line.strip().startswith("--set")]
    assert len(options) >= 5
    ended = program("plan", "fedseq+fedprox", "--clients", "10", "-q", *(word for option in options for word in option))
    assert ended.code == 0, ended.err


def test_plan_of_chains(program):
    words = ["plan", "fedseq", "--clients", "40", "--alpha", "0", "--rounds", "3", "--set", "grouping.max_clients=5"]
    ended = program(*words, "--fraction", "0.5", "--round", "2")
    assert ended.code == 0
    assert "fedseq on digits, round 2" in ended.out
    assert "40 in 8 groups" in ended.out
    assert "min 5   mean 5   max 5" in ended.out
    assert "route 4 of 4" in ended.out
    assert " → " in ended.out
    facts = program(*words, "--fraction", "0.5", "--round", "2", "--json").json
    assert [len(route) for route in facts["routes"]] == [5, 5, 5, 5]
    assert facts["transfers"] == {"s2c": 4, "c2s": 4, "c2c": 16}
    assert facts["bytes"] == 24 * 4810 * 4
    assert facts["total"]["transfers"] == {"s2c": 12, "c2s": 12, "c2c": 48}
    assert facts["chain"] == {"min": 5, "mean": 5.0, "max": 5}


def test_a_plan_of_a_large_federation_counts_its_first_rounds(program, monkeypatch):
    options = ["--clients", "40", "--rounds", "9", "--set", "grouping.max_clients=5", "--fraction", "0.5"]
    words, private = ["plan", "fedseq", *options], ["plan", "fedseq+dp", *options, "--set", "terms.dp.noise=2"]
    whole, spent = program(*words, "--json").json, program(*private, "--json").json
    assert "rounds_not_counted" not in whole["total"]
    monkeypatch.setattr("fedrelay.report.terminal.plan.MOST_HOPS", 40)  # as many as two rounds have
    assert program(*words, "--json").json == whole  # 40 clients are few
    monkeypatch.setattr("fedrelay.report.terminal.plan.LARGE_FEDERATION", 39)
    first = program(*words, "--json").json
    assert first["total"].pop("rounds_not_counted") == 7
    assert first["total"] == program(*words, "--rounds", "2", "--json").json["total"]
    assert "first 2 of 9 rounds" in program(*words).out
    assert program(*words, "--round", "9", "--json").json["round"] == 9
    assert program(*private, "--json").json == spent  # epsilon of some rounds would be no bound for the run
    assert "privacy, all rounds" in program(*private).out


def test_a_plan_with_faults(program):
    words = ["plan", "fedavg", "--clients", "20", "--rounds", "3", "--fraction", "0.5"]
    assert program(*words, "--json").json["with_faults"] is None
    assert "without faults" not in program(*words).out
    away = ["--set", "faults=[{what: dropout}]"]
    ended = program(*words, *away, "--round", "2")
    assert "the other numbers are without faults" in ended.out
    assert "dropout 10×" in ended.out
    assert "0 updates on 0 of 10 routes" in ended.out
    told = program(*words, *away, "--json").json
    assert (told["client_updates"], told["with_faults"]["client_updates"]) == (10, 0)
    assert told["with_faults"]["transfers"] == {"s2c": 0, "c2s": 0, "c2c": 0}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("faults=[{what: nan, first: 9}]", "faults.0: has no effect: nan begins in round 9, the last round is 2"),
        ("eval.forgetting=3", "eval.forgetting: has no effect: the first followed route would be in round 3 of 2"),
    ],
)
def test_settings_that_come_too_late_are_mentioned(program, setting, said):
    ended = program("plan", "fedavg", "--clients", "10", "--rounds", "2", "--set", setting)
    assert ended.code == 0
    assert said in ended.err


def test_long_plans_are_shortened(program):
    ring = program("plan", "fedcyclic", "--clients", "100", "--fraction", "1")
    assert "… → " in ring.out
    assert "(100)" in ring.out
    single = program("plan", "fedavg", "--clients", "200", "--fraction", "1")
    assert "200 routes of 1" in single.out
    assert len(single.out.splitlines()) < 20
    assert "no model travels" in program("plan", "centralized").out


def test_plan_trains_and_writes_nothing(program, tmp_path):
    assert program("plan", "fedseq", "--clients", "10").code == 0
    assert list(tmp_path.iterdir()) == []


def test_data_lists_all_sets_and_where_they_are(program, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDRELAY_DATA", str(tmp_path / "sets"))
    ended = program("data")
    assert ended.code == 0
    for name in DATASETS:
        assert f" {name} " in ended.out
    assert "not found" in ended.out
    assert "$FEDRELAY_DATA/NAME" in ended.out


def test_data_show_counts_and_draws_in_the_terminal(program, tmp_path):
    ended = program("data", "show", "digits", "--clients", "10", "--alpha", "0")
    assert ended.code == 0
    assert "1,438 to train, 359 to test" in ended.out
    assert "classes per client  min 1   median 1   max 1" in ended.out
    assert "median CPD          1.264" in ended.out
    assert "█" in ended.out
    assert list(tmp_path.iterdir()) == []


def test_data_show_in_json(program):
    facts = program("data", "show", "--clients", "10", "--partition", "iid", "--seed", "3", "--json").json
    assert facts["clients"] == 10
    assert facts["samples"] == 1438
    assert facts["samples_per_client"] == {"min": 143, "median": 144.0, "max": 144}
    assert facts["median_cpd"] < 0.05


@pytest.mark.parametrize(("file", "magic"), [("mix.png", b"\x89PNG"), ("mix.pdf", b"%PDF"), ("mix.svg", b"<?xml")])
def test_data_show_draws_a_picture(program, tmp_path, file, magic):
    ended = program("data", "show", "--clients", "10", "--plot", file)
    assert ended.code == 0
    assert file in ended.out
    assert (tmp_path / file).read_bytes().startswith(magic)


def test_data_show_names_the_picture_in_a_folder(program, tmp_path):
    assert program("data", "show", "--clients", "10", "--plot", ".", "-q").code == 0
    assert (tmp_path / "digits-partition.png").is_file()


def test_data_show_takes_short_names(program):
    words = ["--clients", "10", "--partition", "shards", "--set", "shards_per_client=3", "--json"]
    assert program("data", "show", *words).json["classes_per_client"]["max"] <= 6


def test_json_is_valid_where_numbers_are_not_finite():
    value = {"a": float("nan"), "b": [1.5, float("inf")], 3: ("x", None)}
    assert json.loads(json.dumps(finite(value), allow_nan=False)) == {"a": None, "b": [1.5, None], "3": ["x", None]}


SEVERAL = '''
"""Two parts of one method.

Paper: A. Nobody, 2030.

Rule: they work together.
"""

import fedrelay as fr


class Alone(fr.Routing):
    """One client at a time."""

    def plan(self, context, round):
        return fr.RoundPlan(round, (fr.Route((0,)),))


class Quiet(fr.Term):
    """Does nothing.

    Rule: it says nothing.
    """


fr.register("several", summary="", route=Alone, terms={"quiet": Quiet})
'''


def test_parts_of_a_plug_in_are_shown_with_the_rule_of_their_file_once(program, tmp_path, monkeypatch):
    (tmp_path / "my_several.py").write_text(SEVERAL)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    try:
        page = program("methods", "show", "several", "--plugin", "my_several").out
    finally:
        METHODS.pop("several", None)
        sys.modules.pop("my_several", None)
    lines = [line.strip() for line in page.splitlines()]
    wanted = ["route: One client at a time.", "Paper: A. Nobody, 2030.", "Rule: they work together."]
    wanted += ["terms.quiet: Does nothing.", "Rule: it says nothing."]
    assert [line for line in lines if line in wanted] == wanted
