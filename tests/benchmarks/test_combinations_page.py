"""The page about SPFL with eight methods: its arithmetic, and how it shows runs that diverged."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import fedrelay as fr


@pytest.fixture(scope="module")
def combinations(load_benchmark):
    return load_benchmark("combinations")


def outcomes(combinations, accuracy):
    """Two seeds; `accuracy(name, seed)` is None if the run diverges."""
    names = [*combinations.METHODS, *map(combinations.with_spfl, combinations.METHODS), combinations.CONTROL]

    def entry(name, seed):
        found = accuracy(name, seed)
        result = SimpleNamespace(accuracy=found, client_updates=1200, bytes=2_500_000)
        return fr.MethodResults(name, name, *(((result,),) if found is not None else ((), ("seed 1: lost",))))

    return [{name: entry(name, seed) for name in names} for seed in (0, 1)]


def test_means_deviations_and_gains(combinations):
    def accuracy(name, seed):
        return 0.8 + 0.02 * seed if name.startswith("spfl") else 0.75 if "epochs" in name else 0.7

    found = outcomes(combinations, accuracy)
    task = combinations.TASKS[0]
    table = list(combinations.rows(task, found))
    assert table[2] == "| FedAvg | 70.0 ± 0.0 | 81.0 ± 1.4 | +11.0 | 1,200 | 1,200 | 2.5 | 2.5 |"
    assert table[-1] == "| FedAvg, 10 epochs per hop | 75.0 ± 0.0 | – | – | 1,200 × 10 | – | 2.5 | – |"
    assert len(table) == 2 + 8 + 1
    said = combinations.reading(task, found)
    assert said.startswith(
        "At the same number of rounds SPFL improves 8 of 8 methods. SPFL adds +11.0 points to FedAvg."
    )
    assert "+5.0 of them come from 10 times the training" in said
    assert said.endswith("+6.0 remain for the route.")


def test_what_diverged_is_shown_as_that(combinations):
    def partly_lost(name, seed):
        if name == "spfl+feddyn":
            return None if seed else 0.6
        return {"spfl+scaffold": 0.4}.get(name, 0.6 if name.startswith("spfl") else 0.5)

    found = outcomes(combinations, partly_lost)
    task = combinations.TASKS[0]
    row = next(row for row in combinations.rows(task, found) if row.startswith("| FedDyn"))
    assert row == "| FedDyn | 50.0 ± 0.0 | diverged (1 of 2) | – | 1,200 | 1,200 | 2.5 | 2.5 |"
    said = combinations.reading(task, found)
    assert said.startswith("At the same number of rounds SPFL improves 6 of 8 methods, but not SCAFFOLD (−10.0).")


def test_every_seed_deals_out_the_same_samples_anew(combinations):
    task = combinations.TASKS[0]
    one, two = (task.federation(seed) for seed in (1, 2))
    assert one.client_count == two.client_count == 10
    assert one.sample_counts().sum() == two.sample_counts().sum() == task.train
    assert one.fingerprint() != two.fingerprint()
    assert len(one.test.y) == task.test
