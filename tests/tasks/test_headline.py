"""The metric of a task by its name: in results, comparisons, tables, JSON, reports and run folders."""

from __future__ import annotations

import io
import json
import math

import numpy as np
import pytest
from rich.console import Console

import fedrelay as fr
from fedrelay.cli import main
from fedrelay.errors import RunFolderError, SpecError
from fedrelay.report.comparison_summary import comparison_facts
from fedrelay.report.csv_tables import csv_blocks
from fedrelay.report.report_content import document
from fedrelay.report.terminal.run_tables import comparison_tables, result_table
from fedrelay.runtime.run_folder_reader import RunFolderReader

SMALL = {"rounds": 4, "fraction": 1.0, "batch_size": 5, "lr": 0.05, "workers": 1}


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(160, 4)).astype(np.float32)
    y = x @ rng.normal(size=4)
    return fr.federate(x[:120], y[:120], x[120:], y[120:], clients=6, partition="iid")


@pytest.fixture(scope="module")
def outcome(numbers, tmp_path_factory):
    out = tmp_path_factory.mktemp("numbers") / "out"
    return fr.compare(["centralized", "fedavg", "fedseq"], data=numbers, seeds=[1, 2], out=out, **SMALL)


def printed(page) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(page)
    return console.export_text()


def test_a_result_has_its_metric_by_name(outcome):
    result = outcome["fedseq"].results[0]
    errors = [row["rmse"] for row in result.history]
    assert (result.metric, result.score) == ("rmse", errors[-1])
    assert result.score_last == pytest.approx(np.mean(errors))
    assert f"rmse={result.score:.4f}" in repr(result)
    assert "<td>RMSE</td>" in result._repr_html_()
    with pytest.raises(AttributeError, match=r"the task 'regression' has no accuracy; result.score is its rmse"):
        _ = result.accuracy
    assert not hasattr(result, "accuracy_last")


def test_an_error_reaches_a_target_from_above(outcome):
    result = outcome["fedavg"].results[0]
    errors = [row["rmse"] for row in result.history]
    assert errors == sorted(errors, reverse=True)
    assert [result.rounds_to(error) for error in errors] == [1, 2, 3, 4]
    assert result.rounds_to(errors[-1] / 2) is None
    assert result.costs_to(errors[1])["round"] == 2
    assert result.rounds_to_targets() == {0.7: None, 0.8: None, 0.9: None}  # an error has no best value to refer to
    assert result.rounds_to_targets(reference=errors[1])[0.9] in (1, 2)


def test_targets_refer_to_the_error_of_centralised_training(outcome):
    reference = np.mean([result.score_last for result in outcome["centralized"].results])
    assert outcome.reference == pytest.approx(reference)
    assert outcome.targets[0.8] == pytest.approx(reference / 0.8)


def test_json_has_the_name_of_the_metric(outcome):
    facts = comparison_facts(outcome)
    assert (facts["task"], facts["metric"]) == ("regression", "rmse")
    summary = facts["methods"]["fedseq"]
    assert {"rmse", "rmse_last"} <= summary.keys()
    assert "accuracy" not in summary
    run = summary["runs"][0]
    assert {"task", "metric", "rmse", "rmse_last", "mae", "r2", "loss"} <= run.keys()
    assert not any("accuracy" in name for name in run)
    json.dumps(facts, allow_nan=False)


def test_tables_have_the_label_and_plain_numbers(outcome):
    text = printed(comparison_tables(outcome))
    assert "RMSE" in text
    assert "accuracy" not in text
    assert "%" not in text.replace("% take", "").replace("95 %", "")
    text = printed(result_table(outcome["fedavg"].results[0]))
    assert "RMSE" in text
    assert "R²" in text
    assert "rounds to" not in text


def test_the_page_has_the_metric_on_axes_cards_and_tables(outcome):
    page = document([outcome.comparison.out])
    assert page["metric"]["name"] == "rmse"
    cards = {card["name"]: card for section in page["sections"] for card in section["cards"]}
    assert cards["curves"]["figures"]["rmse/round"]["y"] == {"label": "RMSE", "format": "number"}
    assert cards["results"]["table"]["columns"][1].startswith("RMSE, last")
    assert cards["results"]["figures"][""]["title"] == "Final RMSE"
    best = min(("fedavg", "fedseq"), key=lambda name: np.mean([each.score_last for each in outcome[name].results]))
    assert page["headlines"][0]["text"].startswith(f"RMSE of {best}")
    assert "%" not in page["headlines"][0]["number"]
    leads = " ".join(section["lead"] for section in page["sections"])
    assert "Test RMSE, and total costs." in leads
    assert "accuracy" not in leads.replace("its accuracy", "")
    assert "rmse_last_mean" in json.dumps(csv_blocks(page))
    assert cards["targets"]["figures"]["round"]["marks"] or cards["targets"]["figures"]["round"]["note"]


def test_a_run_folder_knows_its_task_without_its_code(outcome, capsys):
    run = next(iter(sorted(outcome.comparison.out.glob("fedseq/*/run.json")))).parent
    facts = RunFolderReader.open(run).task
    assert (facts.name, facts.headline, facts.headline_info.higher_is_better) == ("regression", "rmse", False)
    assert main(["show", str(run)]) == 0
    assert "RMSE" in capsys.readouterr().out


def test_runs_of_different_tasks_are_not_drawn_together(outcome, small, tmp_path):
    fr.run("fedavg", out=tmp_path / "digits", **small)
    run = next(iter(sorted(outcome.comparison.out.glob("fedseq/*/run.json")))).parent
    with pytest.raises(RunFolderError, match=r"must have the same task and metric: .*rmse \(regression\)"):
        document([run, tmp_path / "digits"])


def test_another_metric_of_classification(small):
    result = fr.run("fedavg", eval={"metric": "f1"}, **small)
    assert (result.metric, result.score) == ("f1", result.history[-1]["f1"])
    assert result.accuracy == result.history[-1]["accuracy"]
    assert {"f1_last", "accuracy"} <= result.summary().keys()
    assert fr.run("fedavg", eval={"metric": "loss"}, **small).score == result.history[-1]["loss"]


def test_classification_has_the_keys_that_it_always_had(small):
    summary = fr.run("fedavg", **small).summary()
    names = list(summary)
    first = names.index("accuracy")
    expected = ["accuracy", "accuracy_last", "accuracy_classes", "loss", "precision", "recall", "f1", "rounds_to"]
    assert names[first : first + 8] == expected
    assert "metric" not in names


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("fedavg", {"eval": {"metric": "accuracy"}}, "eval.metric: unknown metric 'accuracy'.*rmse"),
        ("fedseq", {"eval": {"forgetting": 1}}, "eval.forgetting: needs a metric between 0 and 1.*has rmse"),
        ("fedstar", {"route": {"weights": "accuracy"}}, "route.weights: 'accuracy' needs a metric of which more"),
    ],
)
def test_what_needs_a_metric_of_which_more_is_better_is_refused(numbers, method, settings, message):
    with pytest.raises(SpecError, match=message):
        fr.run(method, data=numbers, **SMALL, **settings)


def test_a_reference_above_one_is_refused_for_shares_alone(numbers, small):
    with pytest.raises(SpecError, match=r"eval.reference: must be at most 1, because accuracy is, got 2"):
        fr.run("fedavg", eval={"reference": 2.0}, **small)
    assert fr.run("fedavg", data=numbers, eval={"reference": 20.0}, **SMALL).rounds_to_targets()[0.9] == 1


def test_a_score_that_is_not_known_is_none_in_json_and_nan_in_python():
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    data = fr.federate(
        x[:30], y[:30], x[30:], np.zeros(10, np.int64), clients=3, partition="iid", classes=2, task="binary"
    )
    result = fr.run("fedavg", data=data, **SMALL)
    assert math.isnan(result.score)
    assert result.summary()["auroc"] is None
    assert result.rounds_to(0.5) is None
    json.dumps(result.summary(), allow_nan=False)
