from __future__ import annotations

from pathlib import Path

import pytest

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import comparison
from fedrelay.experiment.sweep_cells import axis_names, sweep_cells


def cells(*methods, **settings):
    return sweep_cells(comparison(methods or ("fedavg", "fedseq"), **settings))


def test_every_combination_of_values_is_a_cell():
    found = cells(sweep={"alpha": [0, 0.1], "data.clients": [10, 20]}, seeds=[1, 2], out=Path("here"))
    assert [cell.name for cell in found] == [
        "alpha 0, clients 10", "alpha 0, clients 20", "alpha 0.1, clients 10", "alpha 0.1, clients 20",
    ]  # fmt: skip
    last = found[-1].comparison
    assert (last.data.alpha, last.data.clients, last.seeds, last.sweep) == (0.1, 20, (1, 2), {})
    assert last.out == Path("here/alpha=0.1,clients=20")


def test_options_of_methods_and_names_can_be_swept():
    found = cells("fedavg", "fedprox", sweep={"terms.prox.mu": [0.1, 1], "model.name": ["mlp", "logreg"]})
    assert [cell.folder for cell in found][1] == "mu=0.1,model=logreg"
    assert found[1].comparison.terms == {"prox": {"mu": 0.1}}
    assert axis_names({"train.clip": 1, "terms.dp.clip": 2}) == ["train.clip", "terms.dp.clip"]


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({"alphaa": [0, 1]}, "sweep, alphaa 0: alphaa: unknown key 'alphaa' (did you mean 'alpha'?)"),
        ({"alpha": [0, -1]}, "sweep, data.alpha -1: data.alpha: must be greater than or equal to 0"),
        ({"terms.prox.mu": [1, 2]}, "sweep, terms.prox.mu 1: terms: no method of this comparison takes these options"),
        ({"seed": [1, 2]}, "sweep.seed: cannot be swept"),
        ({"metric": ["f1", "accuracy"]}, "sweep.eval.metric: cannot be swept"),
        ({"lr": [1]}, "sweep.train.lr: needs at least two values"),
        ({"lr": [0.1, 0.1]}, "sweep.train.lr: needs at least two values, all different"),
        ({"lr": [[0.1], [0.2]]}, "sweep.train.lr: needs plain values"),
        ({"lr": [0.1, 1], "alpha": [0, 1], "clients": [5, 10]}, "at most 2 settings"),
    ],
)
def test_what_cannot_be_swept_is_named(sweep, message):
    with pytest.raises(SpecError) as error:
        cells(sweep=sweep)
    assert message in str(error.value)


def test_a_method_with_a_value_of_its_own_cannot_be_swept():
    own = {"method": "fedseq", "train": {"lr": 0.2}}
    with pytest.raises(SpecError, match=r"sweep\.train\.lr: the method 'fedseq' has its own train\.lr"):
        cells("fedavg", own, sweep={"lr": [0.1, 1]})
