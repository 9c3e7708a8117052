from __future__ import annotations

import json

import pytest

import fedrelay as fr
from fedrelay.errors import RunFolderError
from fedrelay.experiment.spec import comparison
from fedrelay.report.comparison_summary import comparison_facts
from fedrelay.report.report_content import document
from fedrelay.report.tuning_statement import FILE, tuning_statement
from fedrelay.runtime.comparison_result import ComparisonResult, MethodResults


def compared(*methods, **settings):
    """A comparison without results."""
    wanted = comparison(methods, **settings)
    return ComparisonResult(wanted, tuple(MethodResults(each.name, each.method, ()) for each in wanted.methods))


def test_one_set_of_hyperparameters():
    said = tuning_statement(compared("fedavg", "fedseq", lr=0.2, epochs=3, batch_size=8))
    assert said == {
        "tuned": False,
        "text": "Nothing was tuned: one set of hyperparameters for all methods "
        "(learning rate 0.2, 3 epochs, batch size 8).",
        "differing": {},
    }


def test_settings_that_differ_are_named():
    wide = {"method": "fedavg", "label": "wide", "train": {"lr": 0.5}}
    said = tuning_statement(compared("fedavg", wide, "fedprox", terms={"prox": {"mu": 0.1}}))
    assert said["differing"] == {
        "fedavg": {"train.lr": 0.05},
        "wide": {"train.lr": 0.5},
        "fedprox": {"train.lr": 0.05, "terms.prox.mu": 0.1},
    }
    assert said["text"] == (
        "Nothing was tuned. Methods differ in these settings: fedavg: lr 0.05; wide: lr 0.5; "
        "fedprox: lr 0.05, terms.prox.mu 0.1."
    )


def test_methods_with_the_same_settings_are_listed_together():
    faulty = {"method": "fedseq", "label": "faulty", "faults": [{"what": "dropout", "rate": 0.3}]}
    said = tuning_statement(compared("fedavg", "fedseq", {"method": "fedavg", "label": "wide", "train": {"lr": 0.5}}))
    assert said["text"].endswith("settings: fedavg, fedseq: lr 0.05; wide: lr 0.5.")
    said = tuning_statement(compared("fedavg", faulty))
    assert said["text"].endswith("settings: faulty: faults [{what: dropout, rate: 0.3, first: 1}].")


def test_a_tuning_says_what_was_tried_and_chosen(tuned):
    from fedrelay.report.tuning_page import write_tuning_files

    write_tuning_files(tuned)
    said = json.loads((tuned.out / "comparison" / FILE).read_text())
    assert said["tuned"]
    assert said["chosen"] == {each.name: each.settings for each in tuned.methods}
    assert said["grids"]["fedprox"]["terms.prox.mu"] == [0.01, 0.1, 1.0]
    assert said["seeds"] == list(tuned.tuning.tuning_seeds)
    assert said["text"].startswith(f"Every method was tuned with the same budget: {tuned.tuning.tune.trials} trials")
    assert f"fedavg: lr {tuned['fedavg'].choice.best.point.lr}" in said["text"]
    assert comparison_facts(tuned.comparison)["tuning"] == said
    results = next(each for each in document([tuned.out / "comparison"])["sections"] if each["id"] == "results")
    assert said["text"] in results["lead"]


def test_runs_from_anywhere_are_compared_by_their_specs(tmp_path):
    for name, lr in (("slow", 0.01), ("fast", 0.1)):
        fr.run("fedavg", clients=5, rounds=1, lr=lr, workers=1, out=tmp_path / name)
    said = document([tmp_path / "slow", tmp_path / "fast"])["tuning"]
    assert said["differing"] == {"fedavg (slow)": {"train.lr": 0.01}, "fedavg (fast)": {"train.lr": 0.1}}


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"text": 3}'])
def test_a_damaged_statement_is_named(tmp_path, content):
    (tmp_path / FILE).write_text(content)
    with pytest.raises(RunFolderError, match=r"tuned\.json: is damaged"):
        tuning_statement(compared("fedavg"), [tmp_path])
