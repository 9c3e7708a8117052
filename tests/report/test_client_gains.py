"""Single clients on pages and in tables, from numbers that can be checked by hand."""

from __future__ import annotations

import re

import pytest
import torch
from rich.console import Console

from fedrelay.experiment.spec import comparison, experiment
from fedrelay.report import figure_specs as fig
from fedrelay.report.client_gains import client_table, gain_facts, spread_table
from fedrelay.report.comparison_summary import comparison_facts
from fedrelay.report.terminal.client_tables import client_tables
from fedrelay.runtime.comparison_result import ComparisonResult, MethodResults
from fedrelay.runtime.result import Result
from fedrelay.tasks.metric_info import MetricInfo


def outcome(clients, **methods):
    """Method → a score for each client; three seeds that differ in the last digits."""

    def result(method, score, seed):
        rows = [
            {"round": 5, "client": client, "name": f"s{client}", "train_samples": 10 + client,
             "held_out": 40, "scores": {} if score is None else {"accuracy": score + client / 1000 + seed / 1e5},
             **({"not_evaluated": "it holds out none"} if score is None else {})}
            for client in range(clients)
        ]  # fmt: skip
        drawn = [
            {"round": 5, "client": row["client"], "values": [row["scores"]["accuracy"]] * 20}
            for row in rows
            if row["scores"]
        ]
        empty = {"history": [{"round": 5, "accuracy": 0.5}], "weights": torch.zeros(1), "model": {}, "rounds": 5}
        costs = {"client_updates": 1, "longest_route": 1, "transfers": {"s2c": 0, "c2s": 0, "c2c": 0}, "bytes": 0}
        training = "alone" if method == "local" else "federated"
        evaluated = {"client_rows": rows, "client_resamples": drawn}
        return Result(experiment(method, seed=seed), **empty, **costs, **evaluated, seconds=1.0, training=training)

    found = tuple(
        MethodResults(name, name, tuple(result(name, score, seed) for seed in (1, 2, 3)))
        for name, score in methods.items()
    )
    return ComparisonResult(comparison(list(methods), seeds=[1, 2, 3]), found)


def data(found, most=100):
    metric = {"name": "accuracy", "label": "accuracy", "format": "percent"}
    return {"gains": gain_facts(found, most), "metric": metric}


def test_few_clients_have_a_row_each_with_their_gain():
    found = outcome(2, local=0.5, fedavg=0.75)
    facts = gain_facts(found, 100)
    columns, rows = client_table(facts, MetricInfo())
    assert columns == ["Client", "train", "held out", "local", "fedavg"]
    assert [cell["text"] for cell in rows[1]] == ["s1", "11", "40", "50.1 %", "75.1 %"]
    assert rows[1][-1]["small"] == " +25.0"
    assert rows[1][-1]["bold"]
    figure = fig.client_gains(data(found), "fedavg", "note")
    [mark] = figure["marks"]
    assert [row["name"] for row in mark["rows"]] == ["s0", "s1"]
    assert mark["rows"][0]["ends"] == pytest.approx((0.25, 0.25))
    assert figure["note"].startswith("Who loses by taking part in fedavg: nobody; all 2 of 2 gain.")


def test_many_clients_are_a_line_and_a_table_of_their_spread():
    found = outcome(400, local=0.5, fedavg=0.25)
    [line, rule] = fig.client_gains(data(found, 400), "fedavg", "")["marks"]
    assert (line["kind"], len(line["y"]), rule["y"]) == ("line", 400, 0.0)
    columns, rows = spread_table(gain_facts(found, 400), MetricInfo())
    assert columns[-3:] == ["gain", "unclear", "lose"]
    assert rows[1][0] == "fedavg"
    assert rows[1][-3:] == ["0", "0", "400"]
    assert rows[1][3] == "s0: 25.0 %"
    assert rows[1][5] == "+1.00"
    assert rows[0][-3:] == ["–"] * 3


def test_forty_clients_are_sorted_the_worst_first():
    [mark] = fig.client_scores(data(outcome(40, fedavg=0.5)), "fedavg")["marks"]
    values = [row["value"] for row in mark["rows"]]
    assert values == sorted(values)


def test_clients_without_a_score_are_shown_with_the_reason():
    facts = gain_facts(outcome(1, local=0.5, fedavg=None), 100)
    _, [[*_, cell]] = client_table(facts, MetricInfo())
    assert (cell["text"], cell["chips"][0]["text"]) == ("–", "it holds out none")


def test_the_terminal_says_who_loses():
    console = Console(width=100, record=True)
    with console.capture() as said:
        console.print(client_tables(outcome(2, local=0.5, fedavg=0.25)))
    shown = " ".join(said.get().split())
    assert "Who loses by taking part in fedavg: s0 (-25.0), s1 (-25.0)." in shown
    assert "local is the mean of the clients' own models, each on the test samples of all clients." in shown
    assert re.search("95 % of gain +-25.0 … -25.0 +-25.0 … -25.0", said.get())
    assert client_tables(outcome(0, fedavg=0.5)) is None


def test_results_json_has_the_same_numbers():
    facts = comparison_facts(outcome(2, local=0.5, fedavg=0.75))["clients"]
    assert facts["rows"][2]["gain"] == pytest.approx(0.25)
    assert facts["spread"]["fedavg"]["worst"] == "s0"
    assert list(facts["who_loses"]) == ["fedavg"]
