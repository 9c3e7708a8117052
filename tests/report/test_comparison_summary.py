from __future__ import annotations

import csv
from dataclasses import replace

import pytest

from fedrelay.errors import RunFolderError
from fedrelay.report.comparison_summary import comparison_csv, comparison_facts, difference_facts, plan_facts, summarize

CURVES = {
    "fedavg": [[0.2, 0.4, 0.5, 0.7], [0.2, 0.3, 0.4, 0.8]],
    "fedseq": [[0.7, 0.8, 0.8, 0.8], [0.6, 0.7, 0.8, 0.8]],
    "centralized": [[0.9, 1.0, 1.0, 1.0], [0.9, 1.0, 1.0, 1.0]],
}


def test_means_targets_and_speed_ups(outcome):
    done = outcome(CURVES, eval={"last": 2, "targets": [0.7, 0.8, 0.9], "reference": 1.0})
    averaged, chained, central = summarize(done).values()
    assert averaged["accuracy"] == {"mean": pytest.approx(0.75), "std": pytest.approx(0.5**0.5 / 10)}
    assert averaged["accuracy_last"] == {"mean": pytest.approx(0.6), "std": pytest.approx(0)}
    assert averaged["rounds_to"] == {"0.7": 4, "0.8": None, "0.9": None}
    assert chained["rounds_to"] == {"0.7": 1.5, "0.8": 2.5, "0.9": None}
    assert chained["speed_up"] == {"0.7": pytest.approx(4 / 1.5), "0.8": None, "0.9": None}
    assert averaged["speed_up"]["0.7"] == 1
    assert central["rounds_to"]["0.9"] == 1
    costs = ("client_updates", "longest_chain", "bytes", "seconds")
    assert [chained[name] for name in costs] == [8, 2, 4000, 1.5]
    assert chained["transfers"] == {"s2c": 4, "c2s": 4, "c2c": 4}


def test_speed_ups_are_relative_to_the_baseline(outcome):
    done = outcome({"fedavg": [[0.2, 0.7]], "fedseq": [[0.7, 0.7]]}, baseline="fedseq", eval={"targets": [0.7]})
    assert [row["speed_up"] for row in summarize(done).values()] == [{"0.7": 0.5}, {"0.7": 1}]


def test_the_reference_is_centralised_training_where_it_is_compared(outcome):
    done = outcome({"fedavg": [[0.5, 0.6]], "centralized": [[0.8, 0.8]]})
    assert comparison_facts(done)["reference"] == 0.8
    assert summarize(done)["fedavg"]["rounds_to"] == {"0.7": 2, "0.8": None, "0.9": None}  # 56, 64 and 72 %


def test_a_method_that_diverged_has_no_numbers(outcome):
    done = outcome({"fedavg": [[0.5]], "fedseq": []})
    facts = comparison_facts(done)["methods"]["fedseq"]
    assert facts["accuracy"] == {"mean": None, "std": None}
    assert facts["bytes"] is None
    assert facts["rounds_to"] == {"0.7": None, "0.8": None, "0.9": None}
    assert facts["diverged"] == ["seed 1: round 3: the model left client 7"]


def test_every_line_of_the_csv_has_the_same_columns(outcome):
    head, *lines = comparison_csv(outcome({"fedavg": [[0.5]], "fedseq": []})).splitlines()
    assert head.startswith("label,method,accuracy_mean,accuracy_std,accuracy_last_mean")
    assert [line.split(",")[0] for line in lines] == ["fedavg", "fedseq"]
    assert {line.count(",") for line in (head, *lines)} == {head.count(",")}


def test_labels_that_look_like_formulas_are_disarmed(outcome):
    done = outcome({"fedavg": [[0.5]]})
    bad = replace(done, methods=(replace(done.methods[0], name="=1+1"),))
    assert comparison_csv(bad).splitlines()[1].startswith("'=1+1,fedavg,")


def test_costs_that_some_seed_did_not_note_are_not_known(outcome):
    costs = outcome({"fedavg": [[0.9], [0.9]]})["fedavg"].costs_to(0.8)
    assert costs == {"round": 1, "client_updates": 2, "bytes": 1000, "virtual_seconds": None}


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"clients": 3}'])
def test_a_damaged_plan_is_named(tmp_path, content):
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(RunFolderError, match=r"plan\.json: is damaged"):
        plan_facts(tmp_path)


THREE = {"fedavg": [[0.5], [0.6], [0.4]], "fedseq": [[0.7], [0.7], [0.7]], "fedprox": [[0.5], [0.6]]}


def test_differences_are_paired_by_seed_and_say_where_seeds_are_few(outcome):
    found = difference_facts(outcome(THREE))
    chained, close = found["methods"].values()
    assert found["baseline"] == "fedavg"
    assert found["measure"] == "accuracy_last"
    assert chained["mean"] == pytest.approx(0.2)
    assert (chained["low"], chained["high"]) == pytest.approx((0.2 - 0.248414, 0.2 + 0.248414), abs=1e-5)
    assert chained["seeds"] == [1, 2, 3]
    assert not chained["more_than_chance"]
    assert (close["mean"], close["seeds"], close["effect_size"]) == (0, [1, 2], None)
    assert found["notes"] == [
        "two seeds of fedprox: the interval is very wide, and there is no effect size; use at least three seeds"
    ]


def test_one_seed_has_neither_interval_nor_test(outcome):
    found = difference_facts(outcome({"fedavg": [[0.5]], "fedseq": [[0.7]], "fedprox": []}))
    only, lost = found["methods"].values()
    assert only["mean"] == pytest.approx(0.2)
    assert [only[name] for name in ("low", "high", "effect_size", "p_value", "adjusted_p_value")] == [None] * 5
    assert lost["mean"] is None
    assert found["notes"] == [
        "no seed of fedprox in common with fedavg: no difference",
        "one seed of fedseq: no interval, no test, no effect size; use at least three seeds",
    ]


def test_the_csv_has_differences_too(outcome):
    baseline, chained, _ = csv.DictReader(comparison_csv(outcome(THREE)).splitlines())
    assert baseline["difference_mean"] == ""
    assert (chained["difference_baseline"], chained["difference_seeds"]) == ("fedavg", "3")
    assert float(chained["difference_mean"]) == pytest.approx(0.2)
