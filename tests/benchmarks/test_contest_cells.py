"""The cells of the contest, and what trials score."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedrelay.experiment.method_grammar import parse_method


@pytest.fixture
def contest_cells(load_benchmark):
    return load_benchmark("contest_cells")


def test_a_trial_scores_the_mean_over_its_seeds_and_nothing_if_one_diverged(contest_cells):
    found = [{"validation": score} for score in (0.5, 0.75, 0.25, None)]
    assert contest_cells.validation_scores(found, 2) == [0.625, None]
    assert contest_cells.validation_scores(found, 1) == [0.5, 0.75, 0.25, None]


def test_half_of_the_cells_are_frozen(contest_cells):
    assert [cell.frozen for cell in contest_cells.CELLS].count(True) == len(contest_cells.CELLS) / 2
    assert len({cell.name for cell in contest_cells.CELLS}) == len(contest_cells.CELLS) == 16


def test_relay_is_what_it_was_when_it_was_settled():
    """Another `relay` needs other frozen cells: these are evidence about this one only."""
    relay = parse_method("relay")
    parts = (relay.route.__name__, relay.grouping.__name__, relay.merge.__name__, relay.terms, relay.warmup)
    assert parts == ("Chains", "Grouping", "Mean", {}, None)
    assert (relay.sampling, relay.schedule, relay.clip) == ("passes", "cosine", 1.0)
    assert relay.defaults == {
        "route": {"regroup": "pass"},
        "grouping": {"assign": "icg"},
        "server": {"lookahead": 0.9, "ramp": True},
    }


FEW_A_ROUND = {"clients": 20, "fraction": 0.2}
PAIRS = {"grouping.max_clients": 2, "grouping.min_samples": 10**6}
DROPOUT = {"faults": [{"what": "dropout", "rate": 0.5}]}


def run_in(contest_cells, method, rounds, settings):
    cell = contest_cells.smoke_cell(contest_cells.CELLS[0])
    cell = replace(cell, rounds=rounds, settings={**cell.settings, **FEW_A_ROUND}, client_count=20)
    return contest_cells.CellRun(cell, method, method, settings, {"train.lr": 0.1}, 1, rounds, 6, keeps_curve=True)


@pytest.mark.parametrize(
    ("method", "rounds", "settings", "evaluated"),
    [
        ("fedavg", 12, {}, [10, 12]),
        ("fedavg", 13, {}, [12, 13]),
        ("spfl", 12, {}, [2, 3]),  # four times as many updates in a round: it ends sooner
        ("relay", 12, {**PAIRS, "grouping.profile": "clf"}, [6, 7]),  # profiles are updates, too
        ("wfsl+fedavg", 24, {"warmup.cycles": 2}, [12, 16]),  # two rounds of 20 updates, then 14 of four
        ("fedavg", 1, {}, [1]),
        ("fedavg", 12, DROPOUT, None),  # which rounds are the last is not known before
    ],
)
def test_a_run_without_its_curve_has_the_same_scores(contest_cells, method, rounds, settings, evaluated):
    run = run_in(contest_cells, method, rounds, settings)
    with_curve, without = run.measure(), replace(run, keeps_curve=False).measure()
    curve = with_curve.pop("curve")
    assert without | {"seconds": 0} == with_curve | {"seconds": 0}
    every_round = [round for round, *_ in curve]
    assert every_round[-2:] == (evaluated or every_round[-2:])
    made = contest_cells.prepare(contest_cells.experiment(method, data="digits", workers=1, **run.all_settings))
    less = contest_cells.without_unscored_evaluations(made)
    assert (less is made) == (evaluated in (None, [1]))
    if less is not made:
        assert less.prepared.experiment.eval.every == evaluated[0]
