from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import make_federation
from tests.report.folders import SMALL, add_event, ran, stopped

import fedrelay as fr
from fedrelay.cli import main as fedrelay
from fedrelay.data import open_federation
from fedrelay.report import class_counts_of_run, report_content
from fedrelay.report.comparison_summary import summarize, with_reachable_targets
from fedrelay.report.page_limits import EVERYTHING, PageLimits
from fedrelay.report.report_content import document
from fedrelay.report.web_page import as_json


@pytest.fixture(scope="module")
def whole(comparison_folder):
    return document([comparison_folder])


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_document_is_plain_json_and_the_same_every_time(whole, comparison_folder):
    assert json.loads(json.dumps(whole, allow_nan=False)) == json.loads(json.dumps(document([comparison_folder])))


def test_curves_are_means_and_deviations_over_seeds(whole, comparison_folder):
    curves = whole["methods"][1]["curves"]
    rows = [lines(comparison_folder / f"fedseq/seed-{seed}/metrics.jsonl") for seed in (1, 2)]
    accuracy = np.array([[row["accuracy"] for row in history] for history in rows])
    assert curves["round"] == [1, 2, 3, 4]
    assert curves["seeds"] == [2, 2, 2, 2]
    assert curves["accuracy"]["mean"] == pytest.approx(accuracy.mean(axis=0), rel=1e-5)
    assert curves["accuracy"]["std"] == pytest.approx(accuracy.std(axis=0, ddof=1), rel=1e-5)
    assert curves["bytes"] == pytest.approx(np.mean([[row["bytes"] for row in history] for history in rows], axis=0))
    assert curves["runs"][1]["loss"] == pytest.approx([row["loss"] for row in rows[1]], rel=1e-5)


def test_targets_and_summaries_are_those_of_the_comparison(whole, comparison_folder):
    assert whole["reference"]["name"] == "centralised training"
    assert [target["share"] for target in whole["targets"]] == [0.7, 0.8, 0.9]
    for target in whole["targets"]:
        assert target["accuracy"] == pytest.approx(target["share"] * whole["reference"]["accuracy"])
    summary = whole["methods"][0]["summary"]
    assert [set(costs) for costs in summary["costs_to"]] == [
        {"round", "client_updates", "bytes", "virtual_seconds"}
    ] * 3
    assert summary["accuracy"]["mean"] == pytest.approx(
        np.mean([lines(comparison_folder / f"fedavg/seed-{s}/metrics.jsonl")[-1]["accuracy"] for s in (1, 2)])
    )


def test_targets_may_have_many_digits(tmp_path):
    shares = [0.05, 0.1234567, 0.12345671, 2 / 15, 1e-5]
    found = document([ran(tmp_path / "run", "fedavg", **{"eval.targets": shares})])
    history = lines(tmp_path / "run/metrics.jsonl")
    assert [target["share"] for target in found["targets"]] == shares
    for target, costs in zip(found["targets"], found["methods"][0]["summary"]["costs_to"], strict=True):
        reached = next((row["round"] for row in history if row["accuracy"] >= target["accuracy"]), None)
        assert costs["round"] == reached == 1
    named = json.loads((tmp_path / "run/result.json").read_text())["rounds_to"]
    assert named == {"0.05": 1, "0.1234567": 1, "0.12345671": 1, "0.13333333333333333": 1, "1e-05": 1}


def test_a_cost_that_was_not_noted_is_not_known(slots_folder, tmp_path):
    run = shutil.copytree(slots_folder, tmp_path / "run")
    rows = lines(run / "metrics.jsonl")
    for row in rows:
        del row["virtual_seconds"]
    rows[-1]["accuracy"] = 0.95
    (run / "checksums.jsonl").unlink()  # as in runs of earlier versions
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = document([run])
    for costs in found["methods"][0]["summary"]["costs_to"]:
        assert costs["round"] is not None
        assert costs["virtual_seconds"] is None
    assert json.loads(as_json(found))["methods"][0]["name"] == "fedseqinter"


def test_the_head_says_what_all_runs_have_in_common(whole, tmp_path):
    assert whole["facts"] == {
        "data": "digits", "alpha": "0.1", "clients": "20", "samples": "1,438", "model": "mlp", "parameters": "4,810",
        "rounds": "4", "clients per round": "50 %", "training": "1 epoch, batch size 16, learning rate 0.05",
        "seeds": "1, 2",
    }  # fmt: skip
    runs = [
        ran(tmp_path / "small", "fedavg", rounds=1, clients=10, alpha=0.1, lr=0.05),
        ran(tmp_path / "large", "fedseq", rounds=1, clients=20, alpha=100, lr=0.5),
    ]
    found = document(runs)
    facts = found["facts"]
    assert (facts["data"], facts["rounds"], facts["clients per round"]) == ("digits", "1", "50 %")
    assert found["differing"] == {
        "alpha": "0.1 (fedavg); 100 (fedseq)",
        "clients": "10 (fedavg); 20 (fedseq)",
        "training": "1 epoch, batch size 16, learning rate 0.05 (fedavg); "
        "1 epoch, batch size 16, learning rate 0.5 (fedseq)",
    }
    assert not facts.keys() & found["differing"].keys()
    assert whole["differing"] == {}


def test_what_entrants_do_not_share_is_in_the_head(tmp_path):
    entrants = [{"method": "fedavg", "train": {"lr": 0.1}}, {"method": "fedprox", "terms": {"prox": {"mu": 0.5}}}]
    fr.compare(entrants, seeds=[1], out=tmp_path / "two", **SMALL, rounds=1)
    assert document([tmp_path / "two"])["differing"] == {
        "training": "1 epoch, batch size 16, learning rate 0.1 (fedavg); "
        "1 epoch, batch size 16, learning rate 0.05 (fedprox)",
        "terms.prox.mu": "0.5 (fedprox)",
    }


def test_what_differs_from_seed_to_seed_does_not_differ_between_methods(tmp_path):
    settings = {"data": "synthetic", "clients": 8, "rounds": 1, "workers": 1}
    fr.compare(["fedavg", "fedcyclic"], seeds=[1, 2], out=tmp_path / "two", **settings)
    found = document([tmp_path / "two"])
    assert found["facts"]["samples"] == "differs by seed"
    assert found["differing"] == {}


def test_a_title_never_leaves_out_a_single_name(tmp_path):
    runs = [ran(tmp_path / str(number), "fedavg", rounds=1, lr=number / 10) for number in range(1, 7)]
    assert document(runs[:5])["title"].startswith("fedavg (1), fedavg (2), fedavg (3), fedavg (4), fedavg (5) on")
    assert document(runs)["title"].startswith("fedavg (1), fedavg (2), fedavg (3), fedavg (4) and 2 more on")


def test_targets_that_nobody_reached_become_shares_of_what_was_reached(outcome):
    low = outcome({"fedavg": [[0.1, 0.2], [0.1, 0.3]], "fedseq": [[0.1, 0.1], [0.1, 0.4]]})
    found, words = with_reachable_targets(low)
    assert found.targets == {0.7: 0.14, 0.8: 0.16, 0.9: 0.18}  # of the 20 % that all seeds of fedavg reached
    assert words.startswith(
        "No method reached 70.0 % or 80.0 % or 90.0 % with every seed. Targets are shares of 20.0 %"
    )
    assert summarize(found)["fedavg"]["rounds_to"] == {"0.7": 2, "0.8": 2, "0.9": 2}
    reached = outcome({"fedavg": [[0.1, 0.75]]})
    assert with_reachable_targets(reached) == (reached, "")


def test_the_route_map_has_every_route(whole, comparison_folder):
    run = next(each for each in whole["runs"] if each["method"] == 1 and each["seed"] == 2)
    ledger = lines(comparison_folder / "fedseq/seed-2/ledger.jsonl")
    assert [found_round["routes"] for found_round in run["rounds"]] == [line["routes"] for line in ledger]
    assert {found_round["handover"] for found_round in run["rounds"]} == {"direct"}
    assert all(found_round["merges"] for found_round in run["rounds"])
    assert sorted(client for group in run["groups"] for client in group) == list(range(20))
    assert run["rounds_in_all"] == 4
    chain = run["forgetting"]["chains"][0]
    assert (chain["round"], len(chain["matrix"])) == (2, len(chain["clients"]))


def test_slots_and_rounds_without_a_merge(slots_folder):
    [run] = document([slots_folder])["runs"]
    assert len(run["groups"]) > 3
    assert not run["rounds"][0]["merges"]
    assert run["rounds"][0]["slots"] == list(range(len(run["rounds"][0]["routes"])))


def test_the_federation_is_that_of_the_run(whole):
    assert len(whole["federations"]) == 2  # one for each seed, shared by all methods
    federation = whole["federations"][0]
    assert (federation["clients"], len(federation["counts"]), federation["classes"]) == (20, 20, 10)
    assert sum(map(sum, federation["counts"])) == federation["samples"] == 1438
    run = whole["runs"][2]
    sums = np.array([group["counts"] for group in run["group_counts"]]).sum(axis=0)
    assert sums.tolist() == np.array(federation["counts"]).sum(axis=0).tolist()
    assert {each["federation"] for each in whole["runs"]} == {0, 1}


def test_traffic_adds_up(whole):
    for method in whole["methods"]:
        assert sum(method["traffic"]["payloads"].values()) == method["summary"]["bytes"]
        assert sum(method["traffic"]["bytes"].values()) == method["summary"]["bytes"]
        assert method["traffic"]["transfers"] == method["summary"]["transfers"]


def test_what_it_takes_to_repeat_it(whole, comparison_folder):
    assert [spec["name"] for spec in whole["specs"]] == ["fedavg", "fedseq", "centralized"]
    assert whole["specs"][1]["text"] == (comparison_folder / "fedseq/seed-1/spec.yaml").read_text()
    assert whole["specs"][1]["versions"]["torch"]
    assert whole["commands"] == {"All runs": f"fedrelay compare {comparison_folder}/comparison.yaml"}


def test_runs_beside_a_comparison_have_its_name_and_are_not_part_of_its_command(comparison_folder, tmp_path):
    run = ran(tmp_path / "faulty", "fedseq", rounds=1, faults=[{"what": "dropout", "rate": 0.3}])
    found = document([comparison_folder, run])
    assert [method["name"] for method in found["methods"]] == [
        "fedavg",
        "fedseq (three)",
        "centralized",
        "fedseq (faulty)",
    ]
    assert found["differing"]["faults"] == "[{what: dropout, rate: 0.3, first: 1}] (fedseq (faulty))"
    assert list(found["commands"]) == [f"All runs of {comparison_folder}"]


def test_the_command_gives_the_same_weights(whole, comparison_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(whole["specs"][0]["command"])
    assert words[0] == "fedrelay"
    assert fedrelay([*words[1:], "--quiet", "--out", "again"]) == 0
    assert weights_hash(tmp_path / "again") == weights_hash(comparison_folder / "fedavg/seed-1")


def test_the_python_gives_the_same_weights(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)), np.arange(60) % 2
    data = fr.federate(x[:40], y[:40], x[40:], y[40:], clients=4, partition="iid")
    settings = {"rounds": 2, "lr": 0.3, "validation": 0.2, "workers": 1, "faults": [{"what": "dropout", "rate": 0.2}]}
    first = fr.run("fedseq", data=data, out=tmp_path / "run", **settings)
    [spec] = document([tmp_path / "run"])["specs"]
    assert spec["command"] == ""
    again = eval(spec["python"].splitlines()[-1], {"fr": fr, "data": data})
    assert torch.equal(first.weights, again.weights)


def weights_hash(run):
    return json.loads((run / "result.json").read_text())["weights_sha256"]


def as_in_older_versions(run: Path) -> Path:
    """Remove the class counts of a run."""
    facts = json.loads((run / "run.json").read_text())
    del facts["sha256"]["class_counts.npz"]
    (run / "run.json").write_text(json.dumps(facts))
    (run / "class_counts.npz").unlink()
    return run


def test_class_counts_are_those_of_the_data(slots_folder, tmp_path, monkeypatch):
    class_counts_of_run._opened.cache_clear()
    opened = document([as_in_older_versions(shutil.copytree(slots_folder, tmp_path / "older"))])
    monkeypatch.delattr(open_federation, "open_federation")
    stored = document([slots_folder])
    assert stored["federations"] == opened["federations"] != []
    assert stored["runs"][0]["federation"] == opened["runs"][0]["federation"] == 0


def test_class_counts_of_ones_own_data_are_known(tmp_path):
    own = make_federation([5, 9, 3])
    fr.run("fedavg", data=own, rounds=1, out=tmp_path / "own", workers=1)
    [federation] = document([tmp_path / "own"])["federations"]
    assert federation["counts"] == [own.histogram(client).tolist() for client in range(3)]
    [run] = document([as_in_older_versions(tmp_path / "own")])["runs"]
    assert run["federation"] is None
    assert "used data from Python" in run["unknown"]


def test_damaged_class_counts_are_refused(slots_folder, tmp_path):
    run = shutil.copytree(slots_folder, tmp_path / "run")
    (run / "class_counts.npz").write_bytes((run / "class_counts.npz").read_bytes()[:-9])
    with pytest.raises(fr.RunFolderError, match=r"class_counts\.npz: is not what the run was started with"):
        document([run])


def test_other_data_are_not_shown_as_those_of_the_run(slots_folder, tmp_path):
    run = as_in_older_versions(shutil.copytree(slots_folder, tmp_path / "run"))
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, "data_fingerprint": "else"}))
    found = document([run])
    assert found["federations"] == []
    assert found["runs"][0]["unknown"] == "the data found here are not the data of the run"


def test_missing_data_are_named(slots_folder, tmp_path, monkeypatch):
    def lost(data, seed, task):
        raise fr.DataError("mnist: not found\n  looked in: here")

    class_counts_of_run._opened.cache_clear()
    monkeypatch.setattr(open_federation, "open_federation", lost)
    [run] = document([as_in_older_versions(shutil.copytree(slots_folder, tmp_path / "run"))])["runs"]
    assert run["unknown"] == "the data cannot be opened here: mnist: not found"


def test_data_are_opened_once_for_all_methods_that_share_them(comparison_folder, tmp_path, monkeypatch):
    opened = []

    def noted(data, seed, task):
        opened.append(seed)
        return open_again(data, seed, task)

    folder = shutil.copytree(comparison_folder, tmp_path / "older")
    for run in folder.glob("*/seed-*"):
        as_in_older_versions(run)
    class_counts_of_run._opened.cache_clear()
    open_again = open_federation.open_federation
    monkeypatch.setattr(open_federation, "open_federation", noted)
    for _ in range(2):
        document([folder])
    assert sorted(opened) == [1, 1, 2, 2]  # dealt out, and in one place
    class_counts_of_run._opened.cache_clear()


def test_before_the_first_round_there_is_nothing_but_no_error(tmp_path):
    run = stopped(tmp_path / "run", "fedavg", after=1, **{"eval.every": 3})
    found = document([run])
    assert found["methods"][0]["curves"]["round"] == []
    assert found["methods"][0]["runs"][0]["state"] == "stopped"
    assert found["methods"][0]["summary"]["accuracy"] == {"mean": None, "std": None}
    assert len(found["runs"][0]["rounds"]) == 1


def test_a_comparison_that_has_not_begun(comparison_folder, tmp_path):
    folder = tmp_path / "new"
    folder.mkdir()
    shutil.copy(comparison_folder / "comparison.yaml", folder)
    found = document([folder])
    assert found["states"] == {}
    assert found["runs_in_all"] == 6
    assert [method["runs"][0]["state"] for method in found["methods"]] == ["waiting"] * 3


def test_limits_are_kept_and_said(comparison_folder):
    found = document([comparison_folder], PageLimits(points=2, routes=1, hops_of_a_route=2, hops=6))
    assert found["methods"][0]["curves"]["round"] == [1, 4]
    assert found["methods"][0]["curves"]["evaluated"] == 4
    averaged = found["runs"][0]
    assert [found_round["round"] for found_round in averaged["rounds"]] == [1, 4]
    assert averaged["rounds_in_all"] == 4
    assert averaged["rounds"][0]["more_routes"] == 9
    chained = found["runs"][2]["rounds"][0]
    assert len(chained["routes"][0]) == 2
    assert chained["lengths"][0] > 2


def test_faults_are_listed_by_round(slots_folder, tmp_path):
    run = shutil.copytree(slots_folder, tmp_path / "run")
    add_event(run, round=2, route=0, hop=1, client=3, what="dropped out", done="passed over")
    add_event(run, round=1, route=1, hop=0, client=5, what="poisoned", done="sent back")
    found = document([run])
    assert found["events"]["round"] == [1, 2]
    assert found["events"]["what"][0] == "poisoned"
    assert found["events_in_all"] == 2


def test_all_faults_are_counted_however_few_are_listed(slots_folder, tmp_path):
    runs = [shutil.copytree(slots_folder, tmp_path / name) for name in ("one", "two")]
    for times, run in zip((5, 3), runs, strict=True):
        for number in range(times):
            add_event(run, round=2, route=0, hop=0, client=number, what="nan", done=f"refused: reason {number}")
    add_event(runs[0], round=4, route=-1, hop=-1, client=-1, what="diverged", done="round 4: the model left client 3")
    found = document(runs, PageLimits(faults=4, faults_of_a_round=1))
    assert found["faults"] == [
        {"method": 0, "what": "nan", "done": "refused", "times": 5},
        {"method": 1, "what": "nan", "done": "refused", "times": 3},
        {"method": 0, "what": "diverged", "done": "the run ended", "times": 1},
    ]
    assert found["events"]["client"] == [0, 1, 0, 1]
    assert found["events_in_all"] == 9
    for times, run in zip((5, 3), found["runs"], strict=True):
        found_round = next(each for each in run["rounds"] if each["round"] == 2)
        assert found_round["fault_counts"] == {"nan": times}
        assert found_round["faults"] == [
            {"route": 0, "hop": 0, "client": 0, "what": "nan", "done": "refused: reason 0"}
        ]
        assert not any("faults" in found_round for found_round in run["rounds"] if found_round["round"] < 2)


def test_faults_are_counted_by_the_kind_of_handling_and_name_their_methods(comparison_folder, slots_folder, tmp_path):
    run = shutil.copytree(slots_folder, tmp_path / "run")
    for spare in (7, 8):
        add_event(run, round=2, route=0, hop=0, client=1, what="dropout", done=f"replaced by client {spare}")
    found = document([comparison_folder, run])
    [fault] = found["faults"]
    assert (fault["done"], fault["times"]) == ("replaced by another client", 2)
    [card] = next(section for section in found["sections"] if section["id"] == "faults")["cards"]
    assert card["figures"][""]["note"] == "Events of fedseqinter."
    assert document([run])["sections"][-2]["cards"][0]["figures"][""]["note"] == ""


def test_very_many_class_counts_are_merged_for_the_page_alone(tmp_path, monkeypatch):
    """Distances, balance and CSV tables use every class."""
    run = ran(tmp_path / "run", "fedseq", data="synthetic", clients=8, rounds=1)
    monkeypatch.setattr(report_content, "SHADES", 4)
    page, whole = document([run], PageLimits(class_counts=1)), document([run], EVERYTHING)
    merged, counted = page["federations"][0], whole["federations"][0]
    assert (len(merged["counts"][0]), len(counted["counts"][0])) == (4, counted["classes"])
    assert merged["class_names"] == ["0–1", "2–4", "5–6", "7–9"]
    assert merged["median_cpd"] == counted["median_cpd"]
    for few, every in zip(page["runs"][0]["group_counts"], whole["runs"][0]["group_counts"], strict=True):
        assert few["balance"] == every["balance"]
        assert sum(few["counts"]) == sum(every["counts"])
    assert page["tables"]["clients"][0]["*"]["names"] == ["classes_0-1", "classes_2-4", "classes_5-6", "classes_7-9"]
    assert whole["tables"]["clients"][0]["*"]["names"] == [f"class_{each}" for each in range(10)]
