"""Names, labels and paths are shown as they are, whatever they look like."""

from __future__ import annotations

import csv
import json
import shlex
import sys

import pytest
import yaml
from rich.table import Table

from fedrelay.cli.output import CommandOutput, print_error
from fedrelay.experiment.method_catalogue import METHODS

ODD = ["[/x]", "a [/old] b", "runs/[v1]", "[bold]loud", "[link=http://here]", ":warning:", "[", "\\[x]"]


@pytest.mark.parametrize("name", ODD)
def test_no_text_is_taken_for_markup(capsys, name):
    output = CommandOutput()
    table = Table.grid()
    table.add_column(header=name)
    table.add_row(name)
    output.print(name, table)
    output.note(name)
    print_error(name)
    shown = capsys.readouterr()
    assert shown.out == f"{name}\n{name}\n"
    assert shown.err == f"{name}\nfedrelay: {name}\n"


def test_a_comparison_with_odd_labels_in_an_odd_folder(program, tiny, tmp_path):
    entries = [{"method": "fedavg", "label": "fedavg [/old]"}, {"method": "fedavg", "label": "$x^{$ :warning:"}]
    (tmp_path / "[two].yaml").write_text(yaml.safe_dump({"methods": entries}))
    out = "runs/[v1] new"
    ended = program("compare", "[two].yaml", *tiny, "--out", out)
    assert ended.code == 0, ended.err
    assert ended.out.count("fedavg [/old]") >= 3
    assert f"{out}/table.csv" in ended.out
    assert f"fedrelay report {shlex.quote(out)}" in ended.out
    assert "fedavg [/old], seed 1: round 2/2" in ended.err
    with (tmp_path / out / "table.csv").open() as file:
        assert [row["label"] for row in csv.DictReader(file)] == ["fedavg [/old]", "$x^{$ :warning:"]
    looked = program("report", out, "--csv", "[/v2]")
    assert looked.code == 0, looked.err
    assert shlex.split(looked.out.split("such as:")[1].splitlines()[0]) == ["xdg-open", f"{out}/report.html"]
    assert " in [/v2]" in looked.out


def test_a_run_in_an_odd_folder(program, tiny):
    ended = program("run", "fedseq", *tiny, "--out", "[/v1]")
    assert ended.code == 0, ended.err
    assert "[/v1]/model.safetensors" in ended.out
    again = program("run", "fedseq", *tiny, "--out", "[/v1]")
    assert again.code == 4
    assert again.err.startswith("fedrelay: [/v1]: holds a run; continue it with 'fedrelay resume [/v1]'")
    assert program("resume", "[/v1]").out.count("[/v1]/metrics.jsonl") == 1


ODD_CLAIM = '''"""FedSeq [/x] is [red]better.

Source: a paper

In short: 2 against 1

Published: 2 against 1

Holds if: FedSeq [/x] is better.
"""
from fedrelay_reproduce import Check, Claim, ClaimExperiment

SMALL = ClaimExperiment("1/small", {"methods": ["fedseq"], "rounds": 1})
CLAIM = Claim(1, __doc__, lambda small: [Check("x", small["fedseq"].loss, "<", 9)], {"small": SMALL})
'''


def test_odd_titles_of_claims(program, tmp_path):
    (tmp_path / "[/claims]").mkdir(parents=True)
    (tmp_path / "[/claims]" / "01.py").write_text(ODD_CLAIM)
    ended = program("reproduce", "--from", "[/claims]", "--list")
    assert ended.code == 0, ended.err
    assert "FedSeq [/x] is [red]better" in ended.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "fed[/x]seq"], "fed[/x]seq: cannot be read"),
        (["run", "[bold]fedseq"], "method: unknown name '[bold]fedseq'"),
        (["run", "fedseq", "--data", "[/d]"], "data.name: unknown data set '[/d]'"),
        (["run", "fedseq", "--set", "[/x]=1"], "[/x]: unknown key '[/x]'"),
        (["run", "--[/x]"], "No such option '--[/x]'"),
        (["run", "fedavg", "--device", "cpu"], "No such option '--device'; use --set train.device=VALUE\nTry"),
        (["run", "fedavg", "--rouns", "2"], "No such option '--rouns' (did you mean '--rounds'?)\nTry"),
        (["run", "fedavg", "--lr"], "Option '--lr' requires an argument"),
        (["repot"], "No such command 'repot'. Did you mean 'report', 'export'?\nTry"),
        (["rnu"], "No such command 'rnu'. Did you mean 'run'?\nTry"),
        (["report", "[/x]"], "[/x]: there is no such run folder"),
    ],
)
def test_mistakes_are_quoted_as_they_were_made(program, words, message):
    ended = program(*words)
    assert ended.code > 0
    assert ended.err.startswith(f"fedrelay: {message}")


CHATTY = """
import fedrelay as fr

print("imported")


class Chatty(fr.Term):
    def add_gradient(self, gradient, theta, context):
        print("hello from a hook")


fr.register("chatty", summary="", terms={"chatty": Chatty})
"""


def test_with_json_stdout_holds_one_object_whatever_user_code_prints(program, tiny, tmp_path, monkeypatch):
    (tmp_path / "my_chatty.py").write_text(CHATTY)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    try:
        ended = program("run", "chatty", "--plugin", "my_chatty", *tiny, "--out", "run", "--json")
        assert (ended.code, ended.out.count("\n")) == (0, 1), ended.err
        assert json.loads(ended.out)["complete"]
        assert ended.err.count("imported") == 1
        assert "hello from a hook" in ended.err
        del sys.modules["my_chatty"]
        assert json.loads(program("plan", "chatty", "--plugin", "my_chatty", *tiny, "--json").out)["routes"]
        assert "hello from a hook" in program("run", "chatty", *tiny, "--out", "loud").out
    finally:
        METHODS.pop("chatty", None)
        sys.modules.pop("my_chatty", None)
