from __future__ import annotations

import json
import shutil

import pytest
from tests.report.folders import SMALL, failed, ran, stopped

import fedrelay as fr
from fedrelay.report.load_runs import load_run, load_runs
from fedrelay.report.report_content import document
from fedrelay.runtime.run_folder import RunFolder


def test_a_comparison_has_its_own_numbers(comparison_folder):
    found = load_runs([comparison_folder])
    assert [method.name for method in found.methods] == ["fedavg", "fedseq", "centralized"]
    assert [run.seed for _, run in found.runs] == [1, 2, 1, 2, 1, 2]
    assert {run.state for _, run in found.runs} == {"complete"}
    kept = json.loads((comparison_folder / "fedseq/seed-2/result.json").read_text())
    result = found.methods[1].runs[1].result
    same = ("accuracy", "accuracy_last", "rounds", "transfers", "bytes", "client_updates", "longest_route", "seconds")
    assert {name: result.summary()[name] for name in same} == {name: kept[name] for name in same}
    for seconds in ("virtual_seconds", "computing_seconds", "communicating_seconds"):
        assert result.summary()[seconds] == pytest.approx(kept[seconds])
        assert kept[seconds] > 0


def test_runs_that_differ_in_their_seed_belong_together(tmp_path):
    folders = [ran(tmp_path / name, "fedavg", seed=seed) for name, seed in (("one", 1), ("two", 2))]
    folders.append(ran(tmp_path / "other", "fedavg", seed=1, lr=0.01))
    found = load_runs([*folders, folders[0]])
    assert [method.name for method in found.methods] == ["fedavg (one)", "fedavg (other)"]
    assert [method.seeds for method in found.methods] == [(1, 2), (1,)]
    again = shutil.copytree(folders[0], tmp_path / "copy")
    assert [method.seeds for method in load_runs([folders[0], again]).methods] == [(1,), (1,)]


def test_a_run_under_way_is_seen_as_running_and_not_disturbed(warm_python, tmp_path):
    run = stopped(tmp_path / "run", "fedavg", after=2)
    assert load_run(run).state == "stopped"
    code = (
        "import time; from pathlib import Path; from fedrelay.runtime.run_folder import RunFolder\n"
        f"RunFolder.open(Path({str(run)!r})); print('held', flush=True); time.sleep(600)"
    )
    other = warm_python.start("-c", code, folder=tmp_path)
    other.says("held\n")
    assert load_run(run).state == "running"
    with pytest.raises(fr.RunFolderError, match="another process is working"):
        RunFolder.open(run)
    other.kill()
    other.wait()
    assert load_run(run).state == "stopped"
    own = RunFolder.open(run)
    assert load_run(run).state == "running"
    own.close()
    assert fr.resume(run).complete
    assert load_run(run).state == "complete"


def test_an_unfinished_comparison_shows_what_there_is(comparison_folder, tmp_path):
    folder = shutil.copytree(comparison_folder, tmp_path / "part")
    shutil.rmtree(folder / "centralized")
    (folder / "fedseq/seed-2/result.json").unlink()
    found = load_runs([folder])
    assert [[run.state for run in method.runs] for method in found.methods] == [
        ["complete", "complete"],
        ["complete", "stopped"],
        [],
    ]
    assert found.methods[2].seeds == (1, 2)
    assert found.outcome.reference == 1


def test_a_diverged_run_has_its_reason(comparison_folder, tmp_path):
    folder = shutil.copytree(comparison_folder, tmp_path / "wild")
    (folder / "fedavg/seed-1/result.json").unlink()
    (folder / "results.json").write_text('{"methods": {"fedavg": {"diverged": ["seed 1: fedavg: round 3: too far"]}}}')
    [run, other] = load_runs([folder]).methods[0].runs
    assert (run.state, run.reason, other.state) == ("diverged", "fedavg: round 3: too far", "complete")
    entry = load_runs([folder]).outcome.methods[0]
    assert entry.diverged == ("seed 1: fedavg: round 3: too far",)
    assert len(entry.results) == 1


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
        [(seen.history, seen.ledger) for _, seen in load_runs([run]).runs]


def test_a_damaged_chain_is_named(slots_folder, tmp_path):
    run = shutil.copytree(slots_folder, tmp_path / "run")
    (run / "checksums.jsonl").unlink()  # as in runs of earlier versions
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
        load_runs([tmp_path / "nowhere"])


@pytest.mark.parametrize("text", ["{", "[]", '{"methods": {"fedavg": {"diverged": ["what"]}}}', '{"methods": 3}'])
def test_damaged_results_of_a_comparison_are_named(comparison_folder, tmp_path, text):
    folder = shutil.copytree(comparison_folder, tmp_path / "bad")
    (folder / "results.json").write_text(text)
    with pytest.raises(fr.RunFolderError, match=r"results\.json: is damaged"):
        load_runs([folder])


NOBODY = {"faults": [{"what": "dropout", "rate": 1.0}]}


def test_how_a_run_failed_is_read_off_its_events(tmp_path):
    diverged = load_run(failed(tmp_path / "one", "fedavg", **{"train.lr": 1e18}))
    useless = load_run(failed(tmp_path / "two", "fedavg", **NOBODY))
    assert (diverged.state, useless.state) == ("diverged", "untrained")
    assert diverged.reason.startswith("round 1: the model left client")
    assert useless.reason == "no client update was accepted in any round"
    (one,), (two,) = (load_runs([run.records.path]).outcome.methods for run in (diverged, useless))
    assert (one.results, one.untrained) == ((), ())
    assert one.diverged[0].startswith("seed 1: round 1: the model left")
    assert (two.results, two.diverged) == ((), ())
    assert two.untrained == ("seed 1: no client update was accepted in any round",)


def test_how_a_run_of_a_comparison_failed_is_what_its_results_say(tmp_path):
    folder = tmp_path / "both"
    methods = [{"method": "fedavg"}, {"method": "fedseq", **NOBODY}]
    fr.compare(methods, out=folder, **(SMALL | {"rounds": 2}))
    assert document([folder])["states"] == {"complete": 1, "untrained": 1}
    told = {"fedseq": {"untrained": ["seed 1: told: so"], "diverged": []}, "fedavg": {}}
    (folder / "results.json").write_text(json.dumps({"methods": told}))
    (run,) = document([folder])["methods"][1]["runs"]
    assert (run["state"], run["reason"]) == ("untrained", "told: so")
