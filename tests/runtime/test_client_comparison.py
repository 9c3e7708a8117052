"""Together minus alone, client by client, from numbers that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedrelay.metrics.paired_differences import PairedDifference
from fedrelay.runtime.client_comparison import ClientComparison
from fedrelay.runtime.client_scores import ClientScores
from fedrelay.tasks.binary import Binary
from fedrelay.tasks.task_facts import CLASSIFICATION, TaskFacts

AUROC = TaskFacts.of(Binary())


def scores(values, task=CLASSIFICATION, resamples=None):
    lines = tuple(
        {"round": 5, "client": place, "name": name, "train_samples": 10, "held_out": 20 if value is not None else 0,
         "scores": {} if value is None else {"loss": 1.0, task.headline: value},
         **({"not_evaluated": "it holds out none"} if value is None else {})}
        for place, (name, value) in enumerate(values.items())
    )  # fmt: skip
    if resamples is None:  # as if all held-out samples of a client were alike
        resamples = {name: [value] * 20 for name, value in values.items() if value is not None}
    return ClientScores(5, lines, task, resamples)


ALONE = {1: scores({"a": 0.5, "b": 0.8, "c": None}), 2: scores({"a": 0.6, "b": 0.8, "c": None})}
FEDAVG = {1: scores({"a": 0.7, "b": 0.6, "c": None}), 2: scores({"a": 0.9, "b": 0.7, "c": None})}


def test_gains_are_paired_by_seed():
    found = ClientComparison(CLASSIFICATION, {"local": ALONE, "fedavg": FEDAVG}, "local")
    a, b, c = found.gains["fedavg"]
    assert a.over_seeds == PairedDifference((pytest.approx(0.2), pytest.approx(0.3)))
    assert (a.score, a.alone, a.gain) == pytest.approx((0.8, 0.55, 0.25))
    assert (b.gain, b.effect) == (pytest.approx(-0.15), "unclear")  # two seeds say little
    assert (c.gain, c.effect, c.reason) == (None, None, "it holds out none")
    assert found.spread("fedavg").worst == "b"
    assert all(each.gain is None for each in found.gains["local"])


def test_intervals_over_cases_are_quantiles_of_paired_resamples():
    rng = np.random.default_rng(1)
    drawn = {"a": rng.random(1000).tolist(), "b": rng.random(1000).tolist()}
    worse = {"a": [value - 0.25 for value in drawn["a"]], "b": rng.random(1000).tolist()}
    alone = {1: scores({"a": 0.8, "b": 0.5}, resamples=drawn)}
    fedavg = {1: scores({"a": 0.55, "b": 0.5}, resamples=worse)}
    a, b = ClientComparison(CLASSIFICATION, {"local": alone, "fedavg": fedavg}, "local").gains["fedavg"]
    assert a.over_samples == pytest.approx((-0.25, -0.25))
    assert (a.effect, b.effect) == ("loses", "unclear")
    low, high = np.quantile(np.subtract(worse["b"], drawn["b"]), [0.025, 0.975])
    assert b.over_samples == pytest.approx((low, high))


def test_resamples_on_which_the_metric_is_undefined_leave_no_interval():
    drawn = {"a": [None] * 200 + [0.5] * 800}
    alone, together = ({1: scores({"a": value}, AUROC, drawn)} for value in (0.5, 0.9))
    [a] = ClientComparison(AUROC, {"local": alone, "spfl": together}, "local").gains["spfl"]
    assert a.over_samples is None
    alone, together = ({seed: scores({"a": value}, AUROC, drawn) for seed in (1, 2, 3)} for value in (0.5, 0.9))
    [a] = ClientComparison(AUROC, {"local": alone, "spfl": together}, "local").gains["spfl"]
    assert (a.interval_over_seeds, a.effect) == ((pytest.approx(0.4), pytest.approx(0.4)), "unclear")


def test_without_resamples_nobody_gains_or_loses_for_certain():
    alone, together = ({seed: scores({"a": value}, resamples={}) for seed in (1, 2, 3)} for value in (0.5, 0.9))
    [a] = ClientComparison(CLASSIFICATION, {"local": alone, "spfl": together}, "local").gains["spfl"]
    assert (a.interval_over_seeds, a.over_samples) == ((pytest.approx(0.4), pytest.approx(0.4)), None)
    assert a.effect == "unclear"


def test_the_line_names_who_loses():
    alone = {seed: scores({"a": 0.5, "b": 0.8, "c": 0.7}) for seed in (1, 2, 3)}
    better = {seed: scores({"a": 0.9 + seed / 1000, "b": 0.6 - seed / 1000, "c": 0.7}) for seed in (1, 2, 3)}
    found = ClientComparison(CLASSIFICATION, {"alone": alone, "spfl": better, "all": better}, "alone")
    assert found.compared == ["spfl", "all"]
    assert found.who_loses("spfl") == ("Who loses by taking part in spfl: b (-20.2); unclear for c (0.0); 1 of 3 gain.")
    happy = {seed: scores({"a": 0.9 + seed / 1000}) for seed in (1, 2, 3)}
    sad = {seed: scores({"a": 0.1}) for seed in (1, 2, 3)}
    nobody = ClientComparison(CLASSIFICATION, {"local": sad, "spfl": happy}, "local")
    assert nobody.who_loses("spfl") == "Who loses by taking part in spfl: nobody; all 1 of 1 gain."


def test_of_errors_less_is_a_gain():
    task = TaskFacts("regression", "loss", {})
    alone, together = ({seed: scores({"a": value}, task) for seed in (1, 2)} for value in (2.0, 1.5))
    [a] = ClientComparison(task, {"local": alone, "fedavg": together}, "local").gains["fedavg"]
    assert a.gain == 0.5


def test_rows_are_flat_and_without_local_there_is_no_gain():
    found = ClientComparison(CLASSIFICATION, {"fedavg": FEDAVG}, None)
    rows = list(found)
    assert [row["name"] for row in rows] == ["a", "b", "c"]
    assert rows[0]["score"] == pytest.approx(0.8)
    assert rows[0]["alone"] is rows[0]["gain"] is None
    assert found.compared == []


def test_a_handful_of_cases_proves_nothing():
    def few(values):
        found = scores(values)
        return ClientScores(5, tuple({**line, "held_out": 9} for line in found.lines), CLASSIFICATION, {})

    alone, together = ({seed: few({"7": value}) for seed in (1, 2, 3)} for value in (0.9, 0.1))
    found = ClientComparison(CLASSIFICATION, {"local": alone, "fedavg": together}, "local")
    assert found.gains["fedavg"][0].effect == "unclear"
    assert "unclear for client 7 (-80.0)" in found.who_loses("fedavg")
