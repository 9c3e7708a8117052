from __future__ import annotations

import json

from tests.tuning.tiny import tiny_tuning

from fedrelay.tuning.planned_costs import planned_costs, total
from fedrelay.tuning.tuned_methods import TuningPlan


def test_what_is_planned_is_what_the_ledgers_count(tuned):
    tuning = tiny_tuning(tune={"extensions": 0})
    planned = planned_costs(TuningPlan.of(tuning))
    for method, cost in zip(tuned.methods, planned, strict=True):
        numbers = [trial.number for trial in method.choice.trials if not trial.extension]
        folder = tuned.out / "trials" / method.name
        ledgers = [path for number in numbers for path in folder.glob(f"trial-{number:02}/seed-*/ledger.jsonl")]
        lines = [json.loads(line) for path in ledgers for line in path.read_text().splitlines()]
        assert len(ledgers) == 4
        assert cost.tuning["client_updates"] == sum(line["client_updates"] for line in lines)
        assert cost.tuning["bytes"] == sum(line["bytes"] for line in lines)
        results = tuned.comparison[method.name].results
        assert cost.comparison["bytes"] == sum(result.bytes for result in results)
        assert cost.runs == 4 * 1 + 2
        assert cost.tuning["round"] == 4 * 2 + 2 * 2


def test_limits_end_a_run_before_its_last_round():
    [cost] = planned_costs(TuningPlan.of(tiny_tuning(methods=["fedavg"], stop={"max_updates": 2})))
    assert (cost.full["round"], cost.full["client_updates"]) == (2, 2)


def test_a_trial_pauses_at_an_evaluation():
    [cost] = planned_costs(TuningPlan.of(tiny_tuning(methods=["fedavg"], rounds=6, eval={"every": 2})))
    assert cost.tuning["round"] == 4 * 4 + 2 * 2  # half of six rounds is reached when round 4 is evaluated


def test_costs_are_unknown_where_clients_train_before_groups_are_formed():
    methods = [{"method": "fedseq", "grouping": {"assign": "kmeans", "profile": "clf"}}]
    [cost] = planned_costs(TuningPlan.of(tiny_tuning(methods=methods)))
    assert cost.full is None
    assert total([cost.tuning, cost.comparison])["bytes"] == 0
