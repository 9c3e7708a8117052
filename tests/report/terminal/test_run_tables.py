from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from fedrelay.experiment.spec import experiment
from fedrelay.report.terminal.run_tables import comparison_advice, comparison_tables, heading, result_table
from fedrelay.tasks.binary import Binary
from fedrelay.tasks.task_facts import TaskFacts


def lines_of(thing):
    console = Console(width=80)
    with console.capture() as captured:
        console.print(thing)
    return [line.rstrip() for line in captured.get().splitlines()]


def row_of(name, lines):
    return [line.split()[1:] for line in lines if line.split()[:1] == [name]]


def test_a_result(result):
    lines = lines_of(result_table(result))
    assert lines[:4] == [
        "  accuracy        80.0 %",
        "  mean of last 4  72.5 %",
        "  loss            0.500",
        "  macro F1        80.0 %",
    ]
    assert "  rounds to 80 %  3" in lines
    assert "  rounds to 90 %  –" in lines
    assert "  transfers       4 S2C   4 C2S   4 C2C" in lines
    assert "  traffic         4.0 kB" in lines


def test_a_loss_that_is_not_finite_is_not_shown(result):
    last = {**result.history[-1], "loss": None}
    assert "  loss            –" in lines_of(result_table(replace(result, history=[last])))


def test_a_score_that_is_undefined_says_what_it_needs(result):
    task = TaskFacts.of(Binary())
    row = {"round": 1, "auroc": None, "accuracy": 0.5, "loss": 0.5}
    lines = lines_of(result_table(replace(result, task=task, history=[row])))
    assert "  AUROC              – (needs samples of both classes)" in lines
    assert "  specificity        – (needs samples of class 0)" in lines


def test_a_heading_says_only_what_was_set():
    plan = {"clients": 539, "parameters": 52138}
    lines = lines_of(heading(["fedseq"], experiment("fedseq", data="mnist", model="cnn-s"), plan, [1]))
    assert lines[:3] == ["fedseq on mnist", "  clients   539", "  model     cnn-s, 52,138 parameters"]
    dealt = heading(["a", "b"], experiment("fedseq", clients=20, partition="quantity", alpha=0.1), plan, [1, 2])
    assert lines_of(dealt)[0] == "a, b on digits"
    assert lines_of(dealt)[1] == "  clients   20, quantity, alpha 0.1"
    assert lines_of(dealt)[-1] == "  seeds     1, 2"


def test_a_comparison(outcome):
    curves = {
        "fedavg": [[0.2, 0.5, 0.8, 0.8], [0.2, 0.5, 0.7, 0.8]],
        "fedseq": [[0.8, 0.8, 0.9, 0.9], [0.7, 0.8, 0.9, 0.9]],
    }
    lines = lines_of(comparison_tables(outcome(curves, eval={"last": 1})))
    quality, difference, effort, costs = row_of("fedseq", lines)
    assert quality == ["90.0", "±", "0.0", "90.0", "±", "0.0", "1", "3.0×", "1.5", "2.3×", "3"]
    assert difference == ["+10.0*", "[+10.0,", "+10.0]", "–", "<", "0.001", "2"]
    assert any("two seeds: the interval is very wide" in line for line in lines)
    assert (effort[0], effort[-1]) == ("1.5", "–")  # these curves know no virtual time
    assert costs == ["8", "2", "4", "4", "4", "4.0", "kB", "1.5", "s"]
    assert row_of("fedavg", lines)[0][-3:] == ["3", "3.5", "–"]
    assert "  ×: times fewer rounds than fedavg" in lines
    assert max(map(len, lines)) <= 80


def test_the_baseline_can_be_any_method(outcome):
    curves = {"fedavg": [[0.5], [0.6], [0.4]], "fedseq": [[0.7], [0.8], [0.7]], "fedprox": [[0.5], [0.6], [0.5]]}
    lines = lines_of(comparison_tables(outcome(curves, baseline="fedseq")))
    assert any(line.split()[:2] == ["against", "fedseq"] for line in lines)
    assert row_of("fedavg", lines)[1] == ["-23.3*", "[-37.7,", "-9.0]", "-2.3", "0.020", "3"]
    assert len(row_of("fedseq", lines)) == 3  # quality, effort and costs: it is not compared with itself
    assert not any("seeds: the interval" in line for line in lines)
    assert any(line.startswith("  Nothing was tuned: one set of hyperparameters") for line in lines)


def test_factors_are_relative_to_the_baseline_too(outcome):
    curves = {"fedavg": [[0.2, 0.7]], "fedseq": [[0.7, 0.7]]}
    lines = lines_of(comparison_tables(outcome(curves, baseline="fedseq", eval={"targets": [0.7]})))
    assert row_of("fedavg", lines)[0][-2:] == ["2", "0.5×"]
    assert row_of("fedseq", lines)[0][-1] == "1"
    assert "  ×: times fewer rounds than fedseq" in lines


def test_targets_that_are_shares_of_the_reference_are_named(outcome):
    lines = lines_of(comparison_tables(outcome({"fedavg": [[0.5, 0.6]], "centralized": [[0.8, 0.8]]})))
    assert "  rounds to: 70, 80, 90 % of the reference accuracy, 80.0 %" in lines


def test_one_seed_has_no_deviation(outcome):
    lines = lines_of(comparison_tables(outcome({"fedavg": [[0.5]]})))
    assert row_of("fedavg", lines)[0][:2] == ["50.0", "50.0"]
    assert not any("×" in line for line in lines)


@pytest.mark.parametrize(("rounds", "last"), [(3, 3), (12, 10)])
def test_a_mean_names_the_number_of_evaluations_that_there_were(outcome, rounds, last):
    assert f"last {last}" in " ".join(lines_of(comparison_tables(outcome({"fedavg": [[0.5] * rounds]})))[:2])


def test_a_diverged_method_is_shown_with_its_reason(outcome):
    lines = lines_of(comparison_tables(outcome({"fedavg": [[0.5]], "fedseq": []})))
    assert row_of("fedseq", lines)[0] == ["diverged", "–", "–", "–", "–"]
    assert "  fedseq diverged, seed 1: round 3: the model left client 7" in lines


def test_a_method_of_which_some_seeds_diverged_is_marked(outcome):
    done = outcome({"fedavg": [[0.5]]})
    done = replace(done, methods=(replace(done.methods[0], diverged=("seed 2: round 1",)),))
    lines = lines_of(comparison_tables(done))
    assert row_of("fedavg*", lines)[0][:3] == ["50.0", "50.0", "–"]
    assert "  * fedavg: means over the seeds that did not fail" in lines


@pytest.mark.parametrize(
    ("methods", "shown"), [(["fedavg", "fedseq", "centralized"], "fedseq"), (["fedavg"], "fedavg")]
)
def test_the_advice_points_at_the_best_federated_method(outcome, methods, shown):
    curves = {"fedavg": [[0.5]], "fedseq": [[0.7]], "centralized": [[0.9]]}
    lines = lines_of(comparison_advice(outcome({name: curves[name] for name in methods})))
    assert any(line.endswith(f"fedrelay methods show {shown}") for line in lines)


def test_long_names_are_folded_and_never_cut(outcome):
    name = "fedseq2par+feddc+moon+fedprox+glam"
    lines = lines_of(comparison_tables(outcome({"fedavg": [[0.5], [0.6]], name: [[0.5], [0.6]]})))
    assert not any("…" in line for line in lines)
    first_column = "".join(line[1:].split(" ")[0] for line in lines)
    assert name in first_column


def test_where_data_are_pooled_nobody_takes_part():
    plan = {"clients": 1, "parameters": 10}
    alone = lines_of(heading(["centralized"], experiment("centralized", rounds=7), plan, [1]))
    assert "  rounds    7, all data in one place" in alone
    several = lines_of(heading(["moon", "centralized"], experiment("moon", rounds=7, model="mlp"), plan, [1]))
    assert "  model     mlp, 10 parameters with moon" in several
    assert "  rounds    7, 20 % take part in each" in several
