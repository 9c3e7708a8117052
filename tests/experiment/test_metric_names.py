"""Names of a user's own metrics: those of other columns of a row are refused."""

from __future__ import annotations

import pytest
import torch
from tests.runtime.eight_clients import federation, network

import fedrelay as fr
from fedrelay.experiment.data_and_model import ROW_COLUMNS
from fedrelay.runtime.result import on_validation


def ones(outputs, targets):
    return torch.ones(len(targets))


def run(names, **settings):
    task = fr.CustomTask(loss=torch.nn.functional.cross_entropy, metrics_of=dict.fromkeys(names, ones))
    return fr.run("fedavg", data=federation(), model=network(), task=task, rounds=1, workers=1, **settings)


@pytest.mark.parametrize(
    "names", [["round"], ["bytes"], ["s2c"], ["train_loss"], ["a", "validation_a"], ["validation_loss"]]
)
def test_a_name_that_is_taken_is_refused(names):
    with pytest.raises(fr.SpecError, match=f"task: the metric '{names[-1]}' has the name of another column"):
        run(names)


@pytest.mark.parametrize("name", ["", " ", "a\nb"])
def test_a_name_that_cannot_be_shown_is_refused(name):
    with pytest.raises(fr.SpecError, match="is no name of a metric"):
        run([name])


def test_all_other_columns_are_known():
    task = fr.CustomTask(loss=torch.nn.functional.cross_entropy, metrics_of={"share": ones})
    settings = {"rounds": 1, "workers": 1, "validation": 0.2, "terms.dp.noise": 1.0}
    row = fr.run("fedavg+dp", data=federation(), model=network(), task=task, **settings).history[-1]
    known = {*ROW_COLUMNS, "share", on_validation("share"), on_validation("loss")}
    assert row.keys() <= known
