"""Records: what a page needs of runs, in small files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedrelay.errors import RunFolderError
from fedrelay_reproduce import Check, Claim, ClaimExperiment, Measured, Results, rounds_to
from fedrelay_reproduce.catalogue import load_claims
from fedrelay_reproduce.page import reproduction_page
from fedrelay_reproduce.records import record_path, write_record
from fedrelay_reproduce.results import NOT_RUN, at_larger_scale, entry_of, recorded_entries, write_records
from fedrelay_reproduce.scaled_claim import scaled_claim

TEXT = """One is better.

Source: somebody

In short: 2 > 1

Published: 2 against 1

Holds if: it is
"""
ONLY = ClaimExperiment("01/only", {"methods": ["fedavg", "fedseq"], "data": {"name": "digits"}, "rounds": 3})


def criterion(only: Results) -> list[Check]:
    return [
        Check("better", only["fedseq"].accuracy_last, ">", only["fedavg"].accuracy_last),
        Check("faster", rounds_to(only["fedseq"], 0.5), "<", rounds_to(only["fedavg"], 0.5)),
    ]


CLAIM = Claim(1, TEXT, criterion, {"only": ONLY}, seeds={"small": 2})


def run(name: str, last: float, reached: int) -> Measured:
    curve = [
        {"round": each, "accuracy": last if each >= reached else 0.1, "client_updates": 10 * each, "loss": 1.0}
        for each in (1, 2, 3)
    ]
    return Measured(name, {"accuracy_last": last, "bytes": 1e7 / 3, "seconds": 1.25}, curve, 3)


def recorded(folder, spec=None):
    runs = {
        "fedavg": {1: run("fedavg", 0.6, 3), 2: run("fedavg", 0.61, 3)},
        "fedseq": {1: run("fedseq", 0.8, 2), 2: run("fedseq", 0.82, 2)},
    }
    path = record_path(folder, "small", "01/only")
    write_record(
        path, spec or ONLY.spec("small"), runs, {"versions": {"fedrelay": "1"}, "seconds": {"1": 2.5, "2": 2.5}}
    )
    return path


def test_a_claim_is_judged_by_its_records(tmp_path):
    recorded(tmp_path / "records")
    entry = recorded_entries({1: CLAIM}, "small", tmp_path / "none", tmp_path / "records")[1]
    assert (entry["verdict"], entry["scale"], entry["seeds"], entry["seconds"]) == ("holds", "small", [1, 2], 5.0)
    assert entry["versions"] == {"fedrelay": "1"}
    assert entry["measured"]["only"]["fedseq"]["bytes"] == [3333330.0, 3333330.0]
    assert entry["checks"][1]["left"] == (2.0, 2.0)


def test_a_verdict_does_not_wait_for_supplements(tmp_path):
    later = ONLY.but("01/later", {"methods": ["fedprox"]}, only="small", seeds=1)
    claim = replace(CLAIM, supplements={"later": later})
    recorded(tmp_path)
    before = recorded_entries({1: claim}, "small", tmp_path / "none", tmp_path)[1]
    assert (before["verdict"], set(before["measured"])) == ("holds", {"only"})
    assert "added after the verdict" not in reproduction_page({1: claim}, {1: before}, {})
    runs = {"fedprox": {1: run("fedprox", 0.1, 3)}}
    facts = {"versions": {"fedrelay": "1"}, "seconds": {"1": 1.0}}
    write_record(record_path(tmp_path, "small", "01/later"), later.spec("small"), runs, facts)
    after = recorded_entries({1: claim}, "small", tmp_path / "none", tmp_path)[1]
    assert (after["verdict"], after["checks"], after["seconds"]) == ("holds", before["checks"], 6.25)
    assert "| later, added after the verdict | accuracy last, % |" in reproduction_page({1: claim}, {1: after}, {})


def test_accuracies_at_equal_cost(tmp_path):
    def spending(name, seconds):
        curve = [
            {
                "round": each,
                "accuracy": each / 10,
                "client_updates": each,
                "virtual_seconds": seconds * each,
                "bytes": 5,
            }
            for each in (1, 2, 3)
        ]
        return Measured(name, {"accuracy_last": 0.3}, curve, 3)

    runs = {"fedavg": {seed: spending("fedavg", 1) for seed in (1, 2)}}
    runs["fedseq"] = {1: spending("fedseq", 1.5), 2: spending("fedseq", 4)}
    facts = {"versions": {"fedrelay": "1"}, "seconds": {"1": 1, "2": 1}}
    write_record(record_path(tmp_path, "small", "01/only"), ONLY.spec("small"), runs, facts)
    measured = recorded_entries({1: CLAIM}, "small", tmp_path / "none", tmp_path)[1]["measured"]["only"]
    assert measured["fedavg"]["accuracy_at_equal_time"] == [0.3, 0.3]
    assert measured["fedseq"]["accuracy_at_equal_time"] == [0.2, None]  # two rounds in three seconds, or none
    assert "accuracy_at_equal_bytes" not in measured["fedavg"]


def test_records_need_no_data(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDRELAY_DATA", str(tmp_path))
    images = ONLY.but("01/only", {"data": {"name": "mnist"}})
    claim = Claim(1, TEXT, criterion, {"only": images}, seeds={"small": 2})
    recorded(tmp_path / "records", images.spec("small"))
    there = scaled_claim(claim, "small", tmp_path / "none", records=tmp_path / "records")
    assert "data not found: mnist" in there.obstacle
    assert entry_of(there)["verdict"] == "holds"
    assert entry_of(scaled_claim(claim, "small", tmp_path / "none"))["reason"] == there.obstacle


def test_records_with_other_settings_do_not_count(tmp_path):
    recorded(tmp_path, {**ONLY.spec("small"), "rounds": 4})
    assert recorded_entries({1: CLAIM}, "small", tmp_path / "none", tmp_path) == {}


@pytest.mark.parametrize("text", ["{bad", "[]", "{}"])
def test_damaged_records_are_refused(tmp_path, text):
    path = recorded(tmp_path)
    path.write_text(text)
    with pytest.raises(RunFolderError, match=r"01-only\.json: is damaged"):
        recorded_entries({1: CLAIM}, "small", tmp_path / "none", tmp_path)


def test_runs_are_not_taken_from_records_unless_asked(tmp_path):
    recorded(tmp_path)
    assert entry_of(scaled_claim(CLAIM, "small", tmp_path / "none"))["verdict"] == NOT_RUN


def test_nothing_is_written_where_nothing_is_new(tmp_path):
    path = recorded(tmp_path)
    before = path.read_bytes()
    scaled = scaled_claim(CLAIM, "small", tmp_path / "none", records=tmp_path)
    write_records(scaled, tmp_path)
    assert path.read_bytes() == before
    assert "loss" not in json.loads(before)["runs"]["fedavg"]["1"]["curve"]


def test_a_larger_scale_wins_and_at_equal_scales_the_runs_that_are_here():
    def entry(scale, verdict="holds", **more):
        return {"scale": scale, "verdict": verdict, **more}

    small, medium, open_ = entry("small"), entry("medium"), entry("medium", NOT_RUN)
    newer = entry("medium", here=True)
    here, recorded = {1: small, 2: newer, 3: open_, 4: small}, {1: medium, 2: medium, 3: small, 5: medium}
    assert at_larger_scale(here, recorded) == {1: medium, 2: newer, 3: small, 4: small, 5: medium}


def test_the_page_is_what_the_results_beside_it_say(tmp_path):
    docs, claims = Path(__file__).parents[2] / "docs", load_claims()
    entries = recorded_entries(claims, "small", tmp_path, docs / "reproduction" / "results")
    assert len(entries) >= 3
    names = {number: f"reproduction/{number:02}.png" for number in entries}
    pictures = {number: name for number, name in names.items() if (docs / name).is_file()}
    # 'fedrelay reproduce --write docs' makes it again
    assert reproduction_page(claims, entries, pictures) == (docs / "reproduction.md").read_text(encoding="utf-8")


def test_a_claim_goes_on_from_the_runs_that_were_finished_elsewhere(tmp_path):
    records, half = tmp_path / "records", {"fedavg": {1: run("fedavg", 0.6, 3)}, "fedseq": {}}
    path = record_path(records, "small", "01/only")
    write_record(path, ONLY.spec("small"), half, {"versions": {}, "seconds": {"1": 2.5}})
    scaled = scaled_claim(CLAIM, "small", tmp_path / "none", records=records)
    left = [(each.method, each.seed) for each in scaled.experiments["only"].runs if not each.done]
    assert left == [("fedavg", 2), ("fedseq", 1), ("fedseq", 2)]
    known = recorded_entries({1: CLAIM}, "small", tmp_path / "none", records)[1]
    assert (known["verdict"], known["reason"]) == (NOT_RUN, "3 of 4 runs at scale small are still to be done")
    more = {"fedavg": {2: run("fedavg", 0.61, 3)}, "fedseq": {1: run("fedseq", 0.8, 2), 2: run("fedseq", 0.82, 2)}}
    write_record(path, ONLY.spec("small"), more, {"versions": {}, "seconds": {"2": 2.5}})
    assert entry_of(scaled_claim(CLAIM, "small", tmp_path / "none", records=records))["verdict"] == "holds"
