"""Parts as plain data: there and back, and nothing else."""

from __future__ import annotations

import json

import pytest
import torch

from fedrelay.errors import SpecError
from fedrelay.grouping.profiles.clf import TrainedWeights
from fedrelay.grouping.profiles.probe import LargeProbe, Lens, SmallProbe
from fedrelay.grouping.profiles.t2v import Fisher as FisherPortrait
from fedrelay.local.origin import Origin, ZooModel
from fedrelay.local.portrait import Portrait
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.control import Control
from fedrelay.local.terms.fusion import Fusion
from fedrelay.local.terms.prox import Prox
from fedrelay.models.layout import Layout
from fedrelay.plain import described, made
from fedrelay.recipes import CATALOGUE

PARTS = [
    (Term, Prox(mu=0.3, anchor="round")),
    (Term, Control()),
    (Portrait, TrainedWeights(parts=((0, 4), (7, 9)))),
    (Portrait, FisherPortrait(lens=Lens((1, 8, 8), 0.5, 2.0))),
    (Origin, ZooModel(name="mlp", shape=(1, 8, 8), classes=10, kind="image", hidden=(5,))),
    (Origin, SmallProbe(shape=(1, 8, 8), classes=10)),
    (Origin, LargeProbe()),
]


@pytest.mark.parametrize(("base", "part"), PARTS, ids=lambda value: type(value).__name__)
def test_there_and_back_as_json(base, part):
    assert made(base, json.loads(json.dumps(described(part)))) == part


def test_every_term_of_the_catalogue_can_be_sent():
    for entry in CATALOGUE.values():
        for term in entry.terms.values():
            assert made(Term, json.loads(json.dumps(described(term())))) == term()


def test_names_are_unique_below_their_base():
    def below(base):
        return [kind for each in base.__subclasses__() for kind in (each, *below(each))]

    for base in (Term, Portrait, Origin):
        names = [kind.__name__ for kind in set(below(base)) if kind.__module__.startswith("fedrelay.")]
        assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"is": "Popen", "args": "rm"}, "unknown part 'Popen'"),
        ({"is": "LossTerm"}, "unknown part 'LossTerm'"),
        ({"is": "Prox", "mu": "much"}, "Prox.mu: must be a number"),
        ({"is": "Prox", "code": "print(1)"}, "unknown key 'code'"),
        ("Prox", "a part must be a mapping of settings, got str"),
        ({}, "unknown part 'None'"),
    ],
)
def test_anything_else_is_refused(plain, message):
    with pytest.raises(SpecError, match=message):
        made(Term, plain)


def test_a_model_is_built_in_the_form_that_terms_need():
    plain = ZooModel(name="cnn-s", shape=(1, 8, 8), classes=4, kind="image")
    fused = plain.model_copy(update={"terms": (described(Fusion()),)})
    assert Layout.of(fused.build()).size > Layout.of(plain.build()).size
    assert plain.build()(torch.zeros(2, 1, 8, 8)).shape == (2, 4)
