from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
from tests.report.folders import SMALL, failed, ran, stopped

import fedrelay as fr
from fedrelay.report.document import document
from fedrelay.report.gathering import gather, look_at
from fedrelay.runtime.store import RunFolder


def test_a_comparison_is_gathered_with_its_own_numbers(comparison_folder):
    found = gather([comparison_folder])
    assert [party.name for party in found.parties] == ["fedavg", "fedseq", "centralized"]
    assert [run.seed for _, run in found.runs] == [1, 2, 1, 2, 1, 2]
    assert {run.status for _, run in found.runs} == {"complete"}
    kept = json.loads((comparison_folder / "fedseq/seed-2/result.json").read_text())
    result = found.parties[1].runs[1].result
    same = ("accuracy", "accuracy_last", "rounds", "transfers", "bytes", "client_updates", "longest_route", "seconds")
    assert {name: result.summary()[name] for name in same} == {name: kept[name] for name in same}
    for seconds in ("virtual_seconds", "computing_seconds", "communicating_seconds"):
        assert result.summary()[seconds] == pytest.approx(kept[seconds])
        assert kept[seconds] > 0


def test_runs_that_differ_in_their_seed_belong_together(tmp_path):
    folders = [ran(tmp_path / name, "fedavg", seed=seed) for name, seed in (("one", 1), ("two", 2))]
    folders.append(ran(tmp_path / "other", "fedavg", seed=1, lr=0.01))
    found = gather([*folders, folders[0]])
    assert [party.name for party in found.parties] == ["fedavg (one)", "fedavg (other)"]
    assert [party.seeds for party in found.parties] == [(1, 2), (1,)]
    again = shutil.copytree(folders[0], tmp_path / "copy")
    assert [party.seeds for party in gather([folders[0], again]).parties] == [(1,), (1,)]


def test_a_run_under_way_is_seen_as_running_and_not_disturbed(tmp_path):
    run = stopped(tmp_path / "run", "fedavg", after=2)
    assert look_at(run).status == "unfinished"
    code = (
        "import sys; from pathlib import Path; from fedrelay.runtime.store import RunFolder\n"
        f"RunFolder.open(Path({str(run)!r})); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        assert look_at(run).status == "running"
        with pytest.raises(fr.RunFolderError, match="another process is working"):
            RunFolder.open(run)
        other.stdin.close()
    assert look_at(run).status == "unfinished"
    own = RunFolder.open(run)
    assert look_at(run).status == "running"
    own.close()
    assert fr.resume(run).complete
    assert look_at(run).status == "complete"


def test_an_unfinished_comparison_shows_what_there_is(comparison_folder, tmp_path):
    folder = shutil.copytree(comparison_folder, tmp_path / "part")
    shutil.rmtree(folder / "centralized")
    (folder / "fedseq/seed-2/result.json").unlink()
    found = gather([folder])
    assert [[run.status for run in party.runs] for party in found.parties] == [
        ["complete", "complete"],
        ["complete", "unfinished"],
        [],
    ]
    assert found.parties[2].seeds == (1, 2)
    assert found.outcome.reference == 1


def test_a_diverged_run_has_its_reason(comparison_folder, tmp_path):
    folder = shutil.copytree(comparison_folder, tmp_path / "wild")
    (folder / "fedavg/seed-1/result.json").unlink()
    (folder / "results.json").write_text('{"methods": {"fedavg": {"diverged": ["seed 1: fedavg: round 3: too far"]}}}')
    [run, other] = gather([folder]).parties[0].runs
    assert (run.status, run.why, other.status) == ("diverged", "fedavg: round 3: too far", "complete")
    contender = gather([folder]).outcome.contenders[0]
    assert contender.diverged == ("seed 1: fedavg: round 3: too far",)
    assert len(contender.results) == 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: (run / "run.json").unlink(), r"is not a run folder \(run\.json is missing\)"),
        (lambda run: (run / "spec.yaml").write_text("rounds: 9\n"), r"spec\.yaml: is not what the run was started"),
        (lambda run: (run / "metrics.jsonl").write_text("{]\n"), r"metrics\.jsonl: is damaged"),
        (lambda run: (run / "ledger.jsonl").write_text("{}\n"), r"ledger\.jsonl: is damaged \(a line without round"),
    ],
)
def test_a_broken_run_is_named(slots_folder, tmp_path, damage, message):
    run = shutil.copytree(slots_folder, tmp_path / "run")
    damage(run)
    with pytest.raises(fr.RunFolderError, match=message):
        [(seen.history, seen.ledger) for _, seen in gather([run]).runs]


def test_a_damaged_chain_is_named(slots_folder, tmp_path):
    run = shutil.copytree(slots_folder, tmp_path / "run")
    (run / "forgetting.jsonl").write_text('{"round": 1, "clients": [1, 2], "matrix": [[1.0]]}\n')
    with pytest.raises(fr.RunFolderError, match=r"forgetting\.jsonl: is damaged \(its matrix does not fit its clients"):
        document([run])


def test_damaged_routes_are_named(slots_folder, tmp_path):
    run = shutil.copytree(slots_folder, tmp_path / "run")
    lines = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    lines[1]["routes"] = 5
    (run / "ledger.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(fr.RunFolderError, match=r"ledger\.jsonl: is damaged \(a line with an impossible routes\)"):
        document([run])


def test_there_is_no_such_folder(tmp_path):
    with pytest.raises(fr.RunFolderError, match="there is no such run folder"):
        gather([tmp_path / "nowhere"])


@pytest.mark.parametrize("text", ["{", "[]", '{"methods": {"fedavg": {"diverged": ["what"]}}}', '{"methods": 3}'])
def test_damaged_results_of_a_comparison_are_named(comparison_folder, tmp_path, text):
    folder = shutil.copytree(comparison_folder, tmp_path / "bad")
    (folder / "results.json").write_text(text)
    with pytest.raises(fr.RunFolderError, match=r"results\.json: is damaged"):
        gather([folder])


NOBODY = {"faults": [{"what": "dropout", "rate": 1.0}]}


def test_how_a_run_failed_is_read_off_its_events(tmp_path):
    diverged = look_at(failed(tmp_path / "one", "fedavg", **{"train.lr": 1e18}))
    fruitless = look_at(failed(tmp_path / "two", "fedavg", **NOBODY))
    assert (diverged.status, fruitless.status) == ("diverged", "fruitless")
    assert diverged.why.startswith("round 1: the model left client")
    assert fruitless.why == "in no round anybody's work was accepted"
    (one,), (two,) = (gather([run.records.path]).outcome.contenders for run in (diverged, fruitless))
    assert (one.results, one.fruitless) == ((), ())
    assert one.diverged[0].startswith("seed 1: round 1: the model left")
    assert (two.results, two.diverged) == ((), ())
    assert two.fruitless == ("seed 1: in no round anybody's work was accepted",)


def test_how_a_run_of_a_comparison_failed_is_what_its_results_say(tmp_path):
    folder = tmp_path / "both"
    methods = [{"method": "fedavg"}, {"method": "fedseq", **NOBODY}]
    fr.compare(methods, out=folder, **(SMALL | {"rounds": 2}))
    assert document([folder])["states"] == {"complete": 1, "fruitless": 1}
    told = {"fedseq": {"fruitless": ["seed 1: told: so"], "diverged": []}, "fedavg": {}}
    (folder / "results.json").write_text(json.dumps({"methods": told}))
    (run,) = document([folder])["methods"][1]["runs"]
    assert (run["status"], run["why"]) == ("fruitless", "told: so")
