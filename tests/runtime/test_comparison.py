"""Comparisons: several methods and seeds, folders that can be picked up again."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from math import prod

import pytest
import torch
from rich.console import Console
from torch import nn

import fedrelay as fr
from fedrelay.report.report_content import document
from fedrelay.report.terminal.run_tables import comparison_tables
from fedrelay.runtime.comparison import run_comparison
from fedrelay.runtime.comparison_result import load_comparison

pytestmark = pytest.mark.usefixtures("no_drawing")


@pytest.fixture
def tiny(small):
    return {**small, "rounds": 2, "workers": 1}


def test_means_and_deviations_over_seeds(tiny):
    outcome = fr.compare(["fedavg", "fedseq"], **tiny, seeds=[1, 2, 3])
    entry = outcome["fedseq"]
    values = [result.accuracy for result in entry.results]
    mean = sum(values) / 3
    assert entry.mean_std(lambda result: result.accuracy) == pytest.approx(
        (mean, math.sqrt(sum((value - mean) ** 2 for value in values) / 2))
    )
    alone = fr.run("fedseq", **tiny, seed=2)
    assert entry.results[1].history == alone.history


def test_centralised_training_is_the_reference(tiny):
    assert fr.compare(["fedavg"], **tiny).reference == 1.0
    assert fr.compare(["fedavg"], **tiny, reference=0.5).reference == 0.5
    outcome = fr.compare(["fedavg", "centralized"], **tiny)
    assert outcome.reference == outcome["centralized"].results[0].accuracy_last


def test_a_diverged_method_does_not_stop_the_others(tiny):
    wild = {"method": "fedavg", "label": "wild", "train": {"lr": 1e38}}
    outcome = fr.compare([wild, "fedseq"], **tiny, seeds=[1, 2])
    assert outcome["wild"].results == ()
    with pytest.raises(KeyError, match="no method 'tame'; the comparison has wild, fedseq"):
        outcome["tame"]
    assert len(outcome["wild"].diverged) == 2
    assert outcome["wild"].diverged[0].startswith("seed 1: fedavg: round 1: the model left client")
    assert outcome["wild"].mean_std(lambda result: result.accuracy) is None
    assert outcome["wild"].rounds_to(0.1) is None
    assert len(outcome["fedseq"].results) == 2


def test_an_interrupted_comparison_is_picked_up_again(tiny, tmp_path):
    class DieInTheSecondRun:
        runs = 0

        def on_run_start(self, experiment, round):
            self.runs += 1

        def on_round_end(self, context):
            if self.runs == 2:
                raise KeyboardInterrupt

    out = tmp_path / "both"
    with pytest.raises(KeyboardInterrupt):
        fr.compare(["fedavg", "fedseq"], **tiny, out=out, callbacks=DieInTheSecondRun())
    leftover = out / "fedseq" / "seed-1"
    assert leftover.is_dir()
    finished = run_comparison(load_comparison(out))
    expected = fr.compare(["fedavg", "fedseq"], **tiny)
    for name in ("fedavg", "fedseq"):
        assert finished[name].results[0].history == expected[name].results[0].history
        assert finished[name].results[0].complete


def test_a_run_that_died_while_starting_is_started_anew(tiny, tmp_path):
    out = tmp_path / "one"
    fr.compare(["fedavg"], **tiny, out=out)
    run = out / "fedavg" / "seed-1"
    for path in run.iterdir():
        if path.name not in ("spec.yaml", ".lock"):
            path.unlink()
    assert run_comparison(load_comparison(out))["fedavg"].results[0].complete


def test_occupied_folders_are_refused(tiny, tmp_path):
    out = tmp_path / "out"
    fr.compare(["fedavg"], **tiny, out=out)
    with pytest.raises(fr.RunFolderError, match="is not empty and holds something else"):
        fr.compare(["fedseq"], **tiny, out=out)
    fr.compare(["fedavg"], **tiny, out=out)  # the very same goes on, here: is simply read
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(fr.RunFolderError, match="is not empty"):
        fr.compare(["fedavg"], **tiny, out=tmp_path / "other")


def test_a_damaged_comparison_is_named(tmp_path):
    (tmp_path / "comparison.yaml").write_text("methods: [fedavg]\nbogus: 1\n")
    with pytest.raises(fr.RunFolderError, match=r"comparison\.yaml is damaged: bogus: unknown key"):
        load_comparison(tmp_path)


def test_labels_cannot_lead_out_of_the_folder(tiny, tmp_path):
    (tmp_path / "seed-1").mkdir()
    (tmp_path / "seed-1" / "thesis.tex").write_text("precious")
    fr.compare([{"method": "fedavg", "label": ".."}], **tiny, out=tmp_path / "out")
    assert [path.name for path in (tmp_path / "seed-1").iterdir()] == ["thesis.tex"]
    assert (tmp_path / "out" / "_" / "seed-1" / "result.json").is_file()


def test_nothing_is_written_for_what_cannot_run(tiny, tmp_path):
    with pytest.raises(fr.SpecError, match="did you mean 'cnn-s'"):
        fr.compare(["fedavg"], **tiny, model="cnn-z", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def make_net(shape, outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), outputs))


def test_a_function_builds_other_weights_for_every_seed(tiny, tmp_path):
    one, two = fr.compare(["moon"], **tiny, model=make_net, seeds=[1, 2], out=tmp_path / "out")["moon"].results
    assert not torch.equal(one.model["1.0.weight"], two.model["1.0.weight"])
    assert fr.run("moon", **tiny, model=make_net, seed=2).weights_sha256 == two.weights_sha256
    run = tmp_path / "out" / "moon" / "seed-2"
    with pytest.raises(fr.RunFolderError, match=r"model=…\)"):
        fr.resume(run)
    assert fr.resume(run, model=make_net).weights_sha256 == two.weights_sha256
    with pytest.raises(fr.SpecError, match="or a function that builds one, got str"):
        fr.resume(run, model="mlp")


def test_a_run_of_a_function_that_died_ends_with_the_same_bits(tiny, tmp_path):
    class Die:
        def on_round_end(self, context):
            raise ZeroDivisionError

    whole = fr.run("fedseq", **tiny, model=make_net, seed=3)
    settings = {**tiny, "seed": 3, "out": tmp_path / "run", "checkpoint": {"seconds": 0}}
    with pytest.raises(fr.SpecError, match="ZeroDivisionError"):
        fr.run("fedseq", **settings, model=make_net, callbacks=Die())
    assert fr.resume(tmp_path / "run", model=make_net).weights_sha256 == whole.weights_sha256


NOTE = "same initial weights for all seeds"


@pytest.mark.parametrize(
    ("model", "seeds", "noted"),
    [(make_net((64,), 10), [1, 2], True), (make_net((64,), 10), [1], False), (make_net, [1, 2], False)],
)
def test_tables_say_if_all_seeds_start_with_the_same_weights(tiny, tmp_path, model, seeds, noted):
    outcome = fr.compare(["fedavg"], **tiny, model=model, seeds=seeds, out=tmp_path / "out")
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(comparison_tables(outcome))
    page = document([tmp_path / "out"])
    for text in (
        repr(outcome),
        outcome._repr_html_(),
        console.export_text(),
        page["facts"].get("notes", ""),
        (tmp_path / "out" / "results.json").read_text(),
    ):
        assert text.count(NOTE) == noted
    assert page["facts"]["seeds"] == ", ".join(map(str, seeds))


def test_it_is_said_if_methods_do_not_do_the_same_work(tiny):
    more = {"method": "fedavg", "label": "more", "fraction": 0.6}
    outcome = fr.compare(["fedavg", more, "centralized"], **tiny)
    said = "not the same work: between 12 (fedavg) and 24 (more) client updates; stop.max_updates sets a common limit"
    assert outcome.notes == (said,)
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(comparison_tables(outcome))
    assert said in console.export_text()


def test_no_limit_is_advised_where_there_is_one(tiny):
    more = {"method": "fedavg", "label": "more", "fraction": 0.6}
    [said] = fr.compare(["fedavg", more], **tiny, max_updates=6).notes
    assert said == "not the same work: between 6 (fedavg) and 12 (more) client updates"


@pytest.mark.parametrize("rule", [{"max_updates": 12}, {"max_bytes": 10**6}, {"patience": 1, "validation": 0.2}])
def test_nothing_is_said_of_work_if_it_is_the_same_or_ends_by_another_rule(tiny, rule):
    more = {"method": "fedavg", "label": "more", "fraction": 0.6}
    assert fr.compare(["fedavg", more], **tiny, **rule).notes == ()


def test_nothing_is_said_of_runs_that_go_on(tiny):
    more = {"method": "fedavg", "label": "more", "fraction": 0.6}
    outcome = fr.compare(["fedavg", more], **tiny)
    [done] = outcome["more"].results
    going = replace(done, experiment=done.experiment.model_copy(update={"rounds": 9}))
    methods = (outcome["fedavg"], replace(outcome["more"], results=(going,)))
    assert replace(outcome, methods=methods).notes == ()
