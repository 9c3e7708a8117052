from __future__ import annotations

import json

import pytest

from fedrelay.report.tuning_page import tuning_document, write_tuning_files
from fedrelay.report.tuning_summary import reason, tuning_facts


@pytest.fixture(scope="module")
def page(tuned):
    return tuning_document(tuned)


def card(page, name):
    return next(card for section in page["sections"] for card in section["cards"] if card["name"] == name)


def test_the_page_begins_with_the_recommendation_and_ends_with_the_comparison(page, tuned):
    assert page["title"] == f"Use {tuned.recommended.name} on digits"
    names = [section["id"] for section in page["sections"]]
    assert names[:4] == ["advice", "learning-rates", "trials", "curves"]
    assert page["sections"][0]["lead"].startswith(reason(tuned))
    assert page["headlines"][0]["number"] == tuned.recommended.name


def test_methods_are_listed_in_order_with_their_tuned_settings(page, tuned):
    rows = card(page, "advice")["table"]["rows"]
    assert [row[0]["text"] for row in rows] == [each.name for each in tuned.standings]
    assert [chip["text"] for chip in rows[0][0]["chips"]] == ["recommended"]
    lr = tuned["fedavg"].choice.best.point.lr
    assert next(row for row in rows if row[0]["text"] == "fedavg")[1] == f"lr {lr}"
    figures = card(page, "advice")["figures"]
    assert list(figures) == ["score", "client_updates", "bytes", "virtual_seconds"]
    assert figures["score"]["marks"][0]["rows"][0]["value"] == tuned.recommended.score


def test_every_trial_is_drawn_at_every_rung_that_it_reached(page, tuned):
    figures = card(page, "learning-rates")["figures"]
    for place in (0, 1):
        drawn = sum(len(mark["x"]) for mark in figures[str(place)]["marks"])
        reached = [
            trial
            for method in tuned.methods
            for trial in method.choice.trials
            if (place == 1 if trial.extension else len(trial.scores) > place)
        ]
        assert drawn == len(reached)
    tables = card(page, "trials")["details"]
    assert [len(each["table"]["rows"]) for each in tables] == [len(each.choice.trials) for each in tuned.methods]
    outcomes = [row[-1]["text"] for row in tables[0]["table"]["rows"]]
    assert outcomes.count("best") == 1
    assert outcomes.count("stopped at rung 1") == 2


def test_cards_have_tables_to_save(page):
    assert {card["name"] for section in page["sections"] for card in section["cards"]} - {"routes", "reproduce"} <= set(
        page["tables"]
    )
    assert page["tables"]["trials"][0]["method"] == "fedavg"


def test_files(tuned):
    path = write_tuning_files(tuned)
    assert path.read_text().startswith("<!doctype html>")
    facts = json.loads((tuned.out / "tuning.json").read_text())
    assert facts["recommended"] == tuned.recommended.name
    assert facts["methods"]["fedprox"]["settings"]["terms.prox.mu"] in (0.01, 0.1, 1.0)
    assert facts["standings"][0]["scores"] == list(tuned.recommended.scores)
    assert set(tuning_facts(tuned)) == set(facts)
