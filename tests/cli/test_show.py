"""`fedrelay show`: a run looked at without continuing it."""

from __future__ import annotations

from matplotlib.image import imread

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
    assert "followed no chain; set eval.forgetting" in refused.err


def test_what_is_no_run(program):
    ended = program("show", "nowhere")
    assert ended.code != 0
    assert "nowhere: there is no such run folder" in ended.err
