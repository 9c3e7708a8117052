"""`fedrelay reproduce` from end to end, on a claim of its own that takes seconds."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import psutil
import pytest

from fedrelay_reproduce import workers
from fedrelay_reproduce.page import BEGIN, END

TINY = '''"""FedSeq is better.

Source: a paper

In short: 2 against 1

Published: 2 against 1 | in table 1

Holds if: FedSeq is better than FedAvg.

Reading (smoke, does not hold): As it was expected.

Reading (smoke, holds): A surprise.
"""

from fedrelay_reproduce import Check, Claim, ClaimExperiment

SMALL_ONE = ClaimExperiment(
    "03/small_one",
    {
        "methods": ["fedavg", "fedseq"],
        "data": {"clients": 10, "alpha": 0},
        "grouping": {"max_clients": 5, "min_samples": 999},
        "train": {"lr": 0.1},
        "fraction": 0.5,
        "rounds": 2,
    },
)
GROUPS = ClaimExperiment(
    "03/groups", {"groupings": {"random": {}}, "data": {"clients": 10, "alpha": 0}}, kind="groups"
)


def criterion(small_one):
    fedavg, fedseq = small_one["fedavg"], small_one["fedseq"]
    return [
        Check("FedSeq is better", fedseq.accuracy_last, ">", fedavg.accuracy_last),
        Check("FedAvg sends 12 models", fedavg.transfers, "==", 12),
    ]


CLAIM = Claim(3, __doc__, criterion, {"small_one": SMALL_ONE, "groups": GROUPS})
'''
MISSING = TINY.replace(
    'CLAIM = Claim(3, __doc__, criterion, {"small_one": SMALL_ONE, "groups": GROUPS})',
    'FAR = ClaimExperiment("05/far", {"methods": ["fedavg", "fedseq"], "data": {"name": "mnist"}})\n'
    'CLAIM = Claim(5, __doc__, criterion, {"small_one": FAR})',
)


@pytest.fixture
def own(tmp_path):
    """A folder with two claims, one of them with data that are not there."""
    folder = tmp_path / "claims"
    folder.mkdir()
    (folder / "three.py").write_text(TINY)
    (folder / "five.py").write_text(MISSING)
    return ["--from", str(folder), "--scale", "smoke", "--seeds", "2"]


def test_from_end_to_end(program, own, tmp_path):
    done = program("reproduce", *own, "--jobs", "1", "--json")
    assert done.code == 0, done.err
    entries = done.json["claims"]
    assert entries["5"]["verdict"] == "not run"
    assert entries["5"]["reason"] == (
        "data not found: mnist, from The MNIST database of LeCun, Cortes and Burges, http://yann.lecun.com/exdb/mnist/ "
        "('fedrelay data' says where they are sought)"
    )
    found = entries["3"]
    assert found["verdict"] in ("holds", "does not hold", "inconclusive")
    assert [check["text"] for check in found["checks"]] == ["FedSeq is better", "FedAvg sends 12 models"]
    assert found["checks"][1] == {
        "text": "FedAvg sends 12 models", "sign": "==", "verdict": "does not hold", "left": [20.0, 20.0],
        "right": [12.0, 12.0], "margins": [-8.0, -8.0], "reason": None, "interval": None,
            "detectable": None, "arithmetic": False, "unit": "",
    }  # fmt: skip
    assert found["verdict"] == "does not hold"
    assert len(found["measured"]["small_one"]["fedseq"]["accuracy_last"]) == 2
    assert "(smoke)" in done.err
    results = json.loads((tmp_path / "reproduction" / "smoke" / "results.json").read_text())
    assert results["claims"]["3"] == found

    again = program("reproduce", *own, "--jobs", "1", "--json")
    assert again.json["claims"]["3"] == found
    assert "1/6" not in again.err
    assert "1/6" in done.err


def test_what_is_there_is_not_run_again(program, own, tmp_path):
    program("reproduce", "3", *own, "--jobs", "1")
    run = tmp_path / "reproduction" / "smoke" / "03" / "small_one" / "fedseq" / "seed-2"
    before = (run / "result.json").read_bytes()
    (run / "result.json").unlink()
    more = program("reproduce", "3", *own, "--jobs", "1", "--seeds", "2", "--quiet")
    assert more.code == 0
    same = ("weights_sha256", "accuracy_last", "rounds")
    after = json.loads((run / "result.json").read_bytes())
    assert {name: json.loads(before)[name] for name in same} == {name: after[name] for name in same}


def test_what_was_stopped_continues(program, own, tmp_path, monkeypatch):
    execute, began = workers.execute, []

    def until_the_third(run):
        began.append(run)
        if len(began) == 3:
            raise KeyboardInterrupt
        return execute(run)

    monkeypatch.setattr(workers, "execute", until_the_third)
    stopped = program("reproduce", "3", *own, "--jobs", "1")
    assert stopped.code == 130
    assert "everything is saved, and the same command continues" in stopped.err
    noted = json.loads((tmp_path / "reproduction/smoke/results.json").read_text())["claims"]["3"]
    assert (noted["verdict"], noted["reason"]) == ("not run", "4 of 6 runs at scale smoke are still to be done")
    done = program("reproduce", "3", *own, "--jobs", "1", "--json")
    assert done.json["claims"]["3"]["verdict"] == "does not hold"
    assert len(began) == 3 + 4


def test_the_estimate_comes_first_and_may_be_all(program, own, tmp_path):
    done = program("reproduce", *own, "--dry-run", "--json")
    assert done.code == 0
    assert done.json["seconds"]["3"] > 0
    assert done.json["seconds"]["5"] == 0
    assert "not possible" in done.err
    assert not (tmp_path / "reproduction").exists()


def test_processes_side_by_side_come_to_the_same(program, own, tmp_path):
    alone = program("reproduce", "3", *own, "--jobs", "1", "--json").json["claims"]["3"]
    both = program("reproduce", "3", *own, "--jobs", "2", "--json", "--out", "other").json["claims"]["3"]
    for entry in (alone, both):
        entry.pop("seconds")
        for measures in entry["measured"]["small_one"].values():
            measures.pop("seconds")
    assert alone == both


def test_the_page(program, own, tmp_path):
    program("reproduce", *own, "--jobs", "1", "--quiet")
    none = program("reproduce", "--from", own[1], "--write", "docs", "--json")  # nothing was run at scale small
    assert none.json["pictures"] == []
    assert (
        "| 3 | [FedSeq is better](#claim-3) | 2 against 1 | – | – | – | not run |"
        in (tmp_path / "docs" / "reproduction.md").read_text()
    )
    done = program("reproduce", "--from", own[1], "--write", "docs", "--scale", "smoke", "--json")
    assert done.code == 0
    assert done.json["pictures"] == ["reproduction/03.png"]
    picture = (tmp_path / "docs" / "reproduction" / "03.png").read_bytes()
    assert len(picture) < 40_000
    page = (tmp_path / "docs" / "reproduction.md").read_text()
    for line in (
        "| 5 | [FedSeq is better](#claim-5) | 2 against 1 | – | – | – | not run |",
        "| FedAvg sends 12 models | 20 | = | 12 | -8 | – | does not hold |",
        "As it was expected.",
        "![curves of claim 3](reproduction/03.png)",
        "## Rules",
    ):
        assert line in page.splitlines()
    (row,) = (line for line in page.splitlines() if line.startswith("| 3 |"))
    assert row.startswith("| 3 | [FedSeq is better](#claim-3) | 2 against 1 | ")
    assert re.search(r"<br>20 = 12 ✗ \| smoke \| [\d.]+ s \| does not hold \(smoke\) \|$", row)
    assert "`fedrelay reproduce 3 --scale smoke --seeds 2`" in page
    assert "**Not run**: data not found: mnist" in page
    assert "1. Every check of a criterion gives one margin for each seed" in page

    front = tmp_path / "README.md"
    front.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nend\n")
    again = program("reproduce", "--from", own[1], "--write", "docs", "--scale", "smoke", "--json")
    assert again.json["front_page"] == str(front)
    assert front.read_text() == (
        f"# Title\n\n{BEGIN}\n| # | claim | paper | verdict |\n|---|---|---|---|\n\n"
        "Of 2 claims 0 hold, 1 does not, 0 are inconclusive, 1 was not run. [All of them](docs/reproduction.md).\n"
        f"{END}\n\nend\n"
    )  # neither 3 nor 5 is among those of the short table
    assert (tmp_path / "docs" / "reproduction.md").read_text() == page
    assert (tmp_path / "docs" / "reproduction" / "03.png").read_bytes() == picture
    front.write_text(BEGIN)
    broken = program("reproduce", "--from", own[1], "--write", "docs", "--scale", "smoke")
    assert broken.code == 2
    assert "README.md: the table of claims needs one" in broken.err


def test_the_list(program, own):
    done = program("reproduce", "--from", own[1], "--list", "--json")
    assert [claim["claim"] for claim in done.json["claims"]] == [3, 5]
    assert len(program("reproduce", "--list", "--json").json["claims"]) == 29


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["4"], "there is no claim 4; there are 3, 5"),
        (["--scale", "tiny"], "--scale: unknown scale 'tiny'"),
        (["--jobs", "-1"], "--jobs"),
        (["--seeds", "0"], "--seeds"),
        (["--results", "nowhere"], "--results: nowhere is not a folder"),
        (["--results", ".", "--write", "docs"], "--results: has no effect with --write"),
        (["3", "--jobs", "1", "--device", "gpu"], "train.device: 'gpu' cannot be used here"),
    ],
)
def test_mistakes(program, own, words, message):
    done = program("reproduce", "--from", own[1], *words)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


def test_results_of_an_older_version_are_refused(program, own, tmp_path):
    folder = tmp_path / "reproduction" / "smoke"
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps({"claims": {"3": {"claim": 3, "findings": []}}}))
    done = program("reproduce", *own, "--write", "docs")
    assert done.code == 4
    assert "results.json: has an older format; remove it and run the same command again" in done.err


def test_the_example_of_the_page_runs_as_printed(program, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "reproduction.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "mine.py").write_text(example)
    done = program("reproduce", "--from", "mine.py", "--scale", "smoke", "--jobs", "1", "--json")
    assert done.code == 0, done.err
    assert done.json["claims"]["1"]["verdict"] in ("holds", "does not hold", "inconclusive")


def test_workers_end_with_their_parent_even_if_it_is_killed(own, warm_python, tmp_path):
    text = (tmp_path / "claims" / "three.py").read_text()
    (tmp_path / "claims" / "three.py").write_text(text.replace('"rounds": 2', '"rounds": 10**6'))
    parent = warm_python.start("-m", "fedrelay", "reproduce", "3", *own, "--jobs", "2", folder=tmp_path)
    children: list[psutil.Process] = []
    try:
        runs = tmp_path / "reproduction" / "smoke" / "03" / "small_one"
        _wait_until(lambda: len(list(runs.glob("*/seed-*/metrics.jsonl"))) >= 2)
        children = psutil.Process(parent.pid).children(recursive=True)
        assert len(children) >= 2
        parent.kill()
        parent.wait()
        _, alive = psutil.wait_procs(children, timeout=30)
        assert not alive
    finally:
        parent.kill()
        for process in children:
            if process.is_running():
                process.kill()


def _wait_until(reached, seconds=120):
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.1)
