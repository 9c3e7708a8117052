"""`fedrelay show`: a run looked at without continuing it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from matplotlib.image import imread

from fedrelay.runtime.run_folder import RunFolder

FOLLOWED = ["--set", "eval.forgetting=1", "--set", "grouping.max_clients=3", "--set", "grouping.min_samples=9999"]


def test_a_run_that_followed_chains(program, tiny, tmp_path):
    ran = program("run", "fedseq", *tiny, *FOLLOWED, "--out", "run")
    assert ran.code == 0
    assert "backward transfer" in ran.out
    assert imread(tmp_path / "run" / "forgetting.png").size > 0
    files = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    shown = program("show", "run", "--plot", "chain.png")
    assert shown.code == 0
    assert "2 of 2" in shown.out
    assert "backward transfer" in shown.out
    assert "forgotten" in shown.out
    assert "figure" in shown.out
    assert "chain.png" in shown.out
    assert imread(tmp_path / "chain.png").size > 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()} == files
    told = program("show", "run", "--json").json
    assert told["round"] == told["rounds"] == 2
    assert [len(row) for row in told["forgetting"]["matrix"]] == [1, 2, 3]


def test_a_run_that_followed_none(program, tiny):
    assert program("run", "fedavg", *tiny, "--out", "run", "--quiet").code == 0
    shown = program("show", "run")
    assert (shown.code, "backward transfer" in shown.out) == (0, False)
    assert program("show", "run", "--json").json["forgetting"] is None
    refused = program("show", "run", "--plot", "chain.png")
    assert refused.code != 0
    assert "followed no chain; run with eval.forgetting" in refused.err


def test_what_is_no_run(program):
    ended = program("show", "nowhere")
    assert ended.code != 0
    assert "nowhere: there is no such run folder" in ended.err


def test_a_comparison_is_summarised(program, tiny, tmp_path):
    compared = program("compare", "fedavg", "fedcyclic", *tiny, "--out", "both", "--json")
    shown = program("show", "both")
    assert shown.code == 0
    assert shown.out.startswith("fedavg, fedcyclic on digits\n")
    assert "2 of 2 runs complete" in shown.out
    found = program("show", "both", "--json").json
    assert found["states"] == {"complete": 2}
    for name, facts in compared.json["methods"].items():
        assert found["methods"][name]["accuracy"] == facts["accuracy"]
    shutil.rmtree(tmp_path / "both" / "fedcyclic")
    assert "1 of 2 runs complete, 1 waiting" in program("show", "both").out
    assert "both is a comparison; give one of its runs" in program("show", "both", "--plot", "x.png").err


def test_a_run_that_diverged_says_when_and_why(program, tiny):
    spoilt = ["--set", "faults=[{what: nan, first: 2}]"]
    assert program("run", "fedavg", *tiny, *spoilt, "--out", "run").code == 5
    shown = program("show", "run")
    assert shown.code == 0
    assert "diverged in round 2 (round 2: the model left client" in " ".join(shown.out.split())
    told = program("show", "run", "--json").json
    assert (told["state"], told["round"], told["diverged"]["round"]) == ("diverged", 1, 2)
    assert "non-finite weights" in told["diverged"]["why"]


def test_a_run_under_way_can_be_looked_at(program, tiny):
    assert program("run", "fedavg", *tiny, "--out", "run", "--quiet").code == 0
    assert program("show", "run", "--json").json["state"] == "complete"
    Path("run/result.json").unlink()
    assert program("show", "run", "--json").json["state"] == "stopped"
    folder = RunFolder.open(Path("run"))
    try:
        shown = program("show", "run")
    finally:
        folder.close()
    assert shown.code == 0
    assert "running" in shown.out


def test_after_a_warm_up_the_last_chain_is_shown_that_can_forget(program, tiny):
    warm = ["--set", "warmup.cycles=1", "--set", "eval.forgetting=1"]
    assert program("run", "wfsl", *tiny, *warm, "--out", "run", "--quiet").code == 0
    shown = program("show", "run", "--plot", "chain.png", "--json")
    assert shown.json["forgetting"]["round"] == 1
    assert "chain.png" in shown.err


def test_the_search_for_clients_is_part_of_the_time(program, tiny):
    search = ["--set", "warmup.cycles=2", "--set", "warmup.select.by=genetic", "--set", "warmup.select.count=3"]
    ran = program("run", "wfsl", *tiny, *search, "--out", "run", "--json").json
    assert 0 < ran["selection_seconds"] < ran["seconds"]
    lines = [json.loads(line) for line in Path("run/timings.jsonl").read_text().splitlines()]
    assert all(0 < line["selection_seconds"] <= line["seconds"] for line in lines)
    shown = program("show", "run")
    assert "choosing clients" in shown.out


def test_a_killed_run_says_what_is_saved_and_how_to_continue(program, warm_python, tmp_path):
    code = (
        "import os, fedrelay as fr\n"
        "class Dies(fr.Callback):\n"
        "    def on_round_end(self, context):\n"
        "        self.rounds = getattr(self, 'rounds', 0) + 1\n"
        "        if self.rounds == 3:\n"
        "            os._exit(9)\n"
        "fr.run('fedavg', clients=4, rounds=5, workers=1, out='my run', callbacks=[Dies()])\n"
    )
    assert warm_python.run("-c", code, folder=tmp_path).returncode == 9
    shown = program("show", "my run").out
    assert "rounds          3 of 5" in shown
    assert "saved           nothing yet" in shown
    assert "continue with   fedrelay resume 'my run'" in shown
    pointer = json.loads(Path("my run/checkpoint.json").read_text())
    Path("my run/checkpoint.json").write_text(json.dumps({**pointer, "round": 2}))
    assert "saved           up to round 2" in program("show", "my run").out
    told = program("show", "my run", "--json").json
    assert (told["state"], told["round"], told["saved_round"]) == ("stopped", 3, 2)
    Path("my run/checkpoint.json").write_text(json.dumps({**pointer, "round": "2"}))
    assert "checkpoint.json: is damaged (its round cannot be read)" in program("show", "my run").err
