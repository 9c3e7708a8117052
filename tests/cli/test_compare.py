from __future__ import annotations

import csv
import json

import pytest


@pytest.fixture
def compared(program, tiny):
    return program("compare", "fedavg", "fedseq", "centralized", *tiny, "--seeds", "1,2", "--out", "here", "--json")


def test_a_comparison_writes_and_prints_the_same_numbers(compared, tmp_path):
    assert compared.code == 0, compared.err
    assert compared.out.count("\n") == 1
    facts = compared.json
    assert set(facts) == {"reference", "methods", "differences", "tuning", "out", "notes"}
    assert [note.split(":")[0] for note in facts["notes"]] == ["not the same work"]
    assert facts["out"] == "here"
    assert list(facts["methods"]) == ["fedavg", "fedseq", "centralized"]
    central = facts["methods"]["centralized"]
    assert facts["reference"] == central["accuracy_last"]["mean"]
    assert central["transfers"] == {"s2c": 0, "c2s": 0, "c2c": 0}
    averaged = facts["methods"]["fedavg"]
    assert [run["seed"] for run in averaged["runs"]] == [1, 2]
    accuracies = [run["accuracy"] for run in averaged["runs"]]
    assert averaged["accuracy"]["mean"] == pytest.approx(sum(accuracies) / 2)
    assert averaged["longest_chain"] == 1
    assert averaged["bytes"] == 8 * 4810 * 4
    assert json.loads((tmp_path / "here/results.json").read_text()) == facts
    chained = facts["differences"]["methods"]["fedseq"]
    pairs = zip(facts["methods"]["fedseq"]["runs"], averaged["runs"], strict=True)
    gaps = [one["accuracy_last"] - other["accuracy_last"] for one, other in pairs]
    assert facts["differences"]["baseline"] == "fedavg"
    assert chained["mean"] == pytest.approx(sum(gaps) / 2)
    assert chained["low"] < chained["mean"] < chained["high"]
    assert chained["effect_size"] is None
    assert facts["differences"]["notes"][0].startswith("two seeds: the interval is very wide")


def test_tables_and_picture(compared, tmp_path):
    assert max(map(len, compared.err.splitlines())) <= 80
    assert "longest" in compared.err
    assert "here/curves.png" in compared.err
    assert "fedavg, seed 1: round 2/2" in compared.err
    assert (tmp_path / "here/curves.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "here/table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == ["fedavg", "fedseq", "centralized"]
    assert float(rows[0]["accuracy_mean"]) == compared.json["methods"]["fedavg"]["accuracy"]["mean"]
    assert rows[0]["transfers_s2c"] == "4"
    assert rows[0]["runs"] == "2"


def test_a_comparison_resumes_and_continues(compared, program, tmp_path):
    (tmp_path / "here/fedseq/seed-2/result.json").unlink()
    again = program("resume", "here", "--json")
    assert again.code == 0, again.err
    assert "fedseq, seed 1: already complete" in again.err
    assert again.json["methods"]["fedseq"]["accuracy"] == compared.json["methods"]["fedseq"]["accuracy"]


def test_a_file_with_labels_and_one_seed(program, tmp_path):
    (tmp_path / "many.yaml").write_text(
        "methods:\n- fedseq\n- {method: fedseq, label: twice, route: {loops: 2}}\n"
        "data: {name: digits, clients: 10}\nrounds: 50\ntrain: {batch_size: 32}\nseeds: [1, 2, 3]\n"
    )
    ended = program("compare", "many.yaml", "--rounds", "1", "--seed", "5", "--workers", "1")
    assert ended.code == 0, ended.err
    assert "twice" in ended.out
    assert "±" not in ended.out
    assert (tmp_path / "runs/compare-digits/twice/seed-5/result.json").is_file()


def test_the_baseline_is_chosen_by_its_label(program, tiny, tmp_path):
    given = ("compare", "fedavg", "fedseq", *tiny, "--seeds", "1,2", "--out", "here")
    ended = program(*given, "--baseline", "fedseq", "--json")
    assert list(ended.json["differences"]["methods"]) == ["fedavg"]
    assert "against fedseq" in ended.err
    refused = program(*given[:-1], "there", "--baseline", "fedsec")
    assert refused.code == 2
    assert "baseline: 'fedsec' is none of the methods (fedavg, fedseq)" in refused.err
    assert not (tmp_path / "there").exists()
    again = program("report", "here", "--baseline", "fedavg", "--csv", "tables")
    assert again.code == 0, again.err
    assert (
        (tmp_path / "tables/differences.csv").read_text().splitlines()[1].startswith("fedseq,fedavg,accuracy_last,2,")
    )
    refused = program("report", "here", "--baseline", "nobody")
    assert (refused.code, "--baseline: 'nobody' is none of the methods" in refused.err) == (2, True)


def test_a_method_that_diverged_is_named_with_its_reason(program, tmp_path):
    (tmp_path / "wild.yaml").write_text(
        "methods:\n- fedavg\n- {method: fedavg, label: wild, train: {lr: 1.0e+30}}\n"
        "data: {name: digits, clients: 10}\nrounds: 2\ntrain: {batch_size: 32}\n"
    )
    ended = program("compare", "wild.yaml", "--workers", "1", "--out", "here")
    assert ended.code == 0, ended.err
    row = next(line for line in ended.out.splitlines() if line.split()[:1] == ["wild"])
    assert row.split()[1] == "diverged"
    assert "wild diverged, seed 1: fedavg: round 1" in ended.out
    facts = json.loads((tmp_path / "here/results.json").read_text())
    assert facts["methods"]["wild"]["accuracy"] == {"mean": None, "std": None}
    assert facts["methods"]["wild"]["runs"] == []


def test_a_comparison_in_which_everything_diverged_fails(program, tiny, tmp_path):
    ended = program("compare", "fedavg", *tiny, "--lr", "1e30", "--out", "here", "--json")
    assert ended.code == 5
    assert ended.json["methods"]["fedavg"]["runs"] == []
    assert "no run has a result: models diverged" in ended.err
    assert not (tmp_path / "here/curves.png").exists()


def test_fault_events_of_every_method_are_shown(program, tiny, tmp_path):
    (tmp_path / "two.yaml").write_text(
        "methods:\n"
        "  - {method: fedavg, label: calm, faults: []}\n"
        "  - {method: fedavg, label: stormy, faults: [{what: dropout, clients: [0, 1, 2, 3, 4]}], fraction: 1}\n"
        "  - {method: fedavg, label: lost, faults: [{what: dropout}], recovery: {repeats: 0}}\n"
    )
    ended = program("compare", "two.yaml", *tiny, "--out", "out")
    assert ended.code == 0
    assert "fault events of stormy: dropout 10×" in ended.out
    assert "fault events of calm" not in ended.out
    said = " ".join(ended.out.split())
    assert "lost failed, seed 1: fedavg: no client update was accepted in any of the 2 rounds" in said
    told = json.loads((tmp_path / "out" / "results.json").read_text())["methods"]
    assert (told["calm"]["fault_events"], told["stormy"]["fault_events"]) == ({}, {"dropout": 10})
    assert len(told["lost"]["untrained"]) == 1


def test_a_comparison_in_which_nobody_ever_answered_fails(program, tiny):
    ended = program("compare", "fedavg", *tiny, "--set", "faults=[{what: gone}]", "--set", "recovery.repeats=0")
    assert ended.code == 6
    assert "no client update was accepted in any run" in ended.err


@pytest.mark.usefixtures("no_drawing")
def test_a_sweep_is_run_shown_and_resumed(program, tmp_path):
    small = ("--rounds", "1", "--batch-size", "32", "--workers", "1", "--seed", "2", "--clients", "8")
    given = ("compare", "fedavg", "fedseq", "--sweep", "alpha=0,1", *small, "--out", "here")
    planned = program(*given, "--dry-run", "--json")
    assert planned.json["runs"] == 4
    assert planned.json["cells"] == ["alpha=0", "alpha=1"]
    assert not (tmp_path / "here").exists()
    ended = program(*given, "--json")
    assert ended.code == 0, ended.err
    assert "Sweep of data.alpha: 0, 1: 4 runs." in ended.err
    assert "alpha 1: fedseq, seed 2: round 1/1" in ended.err
    assert max(map(len, ended.err.splitlines())) <= 80
    cell = ended.json["cells"][1]
    assert cell["values"] == {"data.alpha": 1}
    assert set(cell["methods"]) == {"fedavg", "fedseq"}
    shown = program("show", "here")
    assert (shown.code, "accuracy in percent on digits, 1 round, by alpha" in shown.out) == (0, True)
    (tmp_path / "here/alpha=1/fedseq/seed-2/result.json").unlink()
    again = program("resume", "here", "--json")
    assert again.code == 0, again.err
    assert again.json["cells"] == ended.json["cells"]
    reported = program("report", "here", "--csv", "csv", "--paper", "paper", "--baseline", "fedseq", "--json")
    assert reported.code == 0, reported.err
    assert (tmp_path / "here/report.html").is_file()
    assert [len(reported.json[kind]) for kind in ("csv", "paper")] == [1, 8]


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        (("alpha",), "--sweep: must be KEY=A,B,…"),
        (("alpha=0,1", "alpha=2,3"), "--sweep: alpha is given twice"),
        (("alpha=0,x",), "sweep, data.alpha x: data.alpha: must be a number"),
        (("alpha=0,1", "clients=5,6", "lr=1,2"), "at most 2 settings"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(program, tmp_path, sweep, message):
    options = [word for each in sweep for word in ("--sweep", each)]
    refused = program("compare", "fedavg", *options, "--out", "here")
    assert refused.code == 2
    assert message in refused.err
    assert not (tmp_path / "here").exists()


def test_a_plain_comparison_can_be_counted(program, tiny):
    ended = program("compare", "fedavg", "fedseq", *tiny, "--seeds", "1,2,3", "--dry-run")
    assert ended.code == 0, ended.err
    assert "runs     6" in ended.out
