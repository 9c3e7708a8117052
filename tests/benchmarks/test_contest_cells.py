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


@pytest.mark.parametrize(("method", "rounds"), [("fedseq", 12), ("spfl", 12), ("relay", 13), ("fedavg", 2)])
def test_a_run_without_its_curve_has_the_same_scores(contest_cells, method, rounds):
    """It is evaluated less often; SPFL, which does more updates in a round, ends sooner."""
    cell = replace(contest_cells.smoke_cell(contest_cells.CELLS[0]), rounds=rounds)
    run = contest_cells.CellRun(cell, method, method, {}, {"train.lr": 0.1}, 1, rounds, evaluations=6, keeps_curve=True)
    with_curve, without = run.measure(), replace(run, keeps_curve=False).measure()
    assert len(with_curve.pop("curve")) >= 2
    assert without | {"seconds": 0} == with_curve | {"seconds": 0}
