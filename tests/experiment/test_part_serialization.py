"""Parts as plain data: there and back, and nothing else."""

from __future__ import annotations

import json

import pytest
import torch

from fedrelay.errors import SpecError
from fedrelay.experiment.method_catalogue import METHODS
from fedrelay.experiment.method_grammar import parse_method
from fedrelay.experiment.method_registration import register
from fedrelay.experiment.part_serialization import REGISTERED, from_plain, to_plain
from fedrelay.grouping.profiles.classifier import TrainedWeightsProfiler
from fedrelay.grouping.profiles.probe_network import ImageAdapter, ResNet18ProbeRebuilder, SmallProbeRebuilder
from fedrelay.grouping.profiles.task2vec import Task2VecProfiler
from fedrelay.local.client_profiler import ClientProfiler
from fedrelay.local.module_rebuilder import ModuleRebuilder, ZooModelRebuilder
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.control_variates import ControlVariates
from fedrelay.local.terms.feature_fusion import FeatureFusion
from fedrelay.local.terms.proximal_penalty import ProximalPenalty
from fedrelay.merge.mean import Mean
from fedrelay.models.flat_layout import FlatLayout

PARTS = [
    (Term, ProximalPenalty(mu=0.3, anchor="round")),
    (Term, ControlVariates()),
    (ClientProfiler, TrainedWeightsProfiler(parts=((0, 4), (7, 9)))),
    (ClientProfiler, Task2VecProfiler(adapter=ImageAdapter((1, 8, 8), 0.5, 2.0))),
    (ModuleRebuilder, ZooModelRebuilder(name="mlp", shape=(1, 8, 8), classes=10, kind="image", hidden=(5,))),
    (
        ModuleRebuilder,
        ZooModelRebuilder(
            name="mlp", shape=(64,), classes=10, kind="tabular", terms=(ProximalPenalty(mu=0.3), ControlVariates())
        ),
    ),
    (ModuleRebuilder, SmallProbeRebuilder(shape=(1, 8, 8), classes=10)),
    (ModuleRebuilder, ResNet18ProbeRebuilder()),
]


@pytest.mark.parametrize(("base", "part"), PARTS, ids=lambda value: type(value).__name__)
def test_there_and_back_as_json(base, part):
    assert from_plain(base, json.loads(json.dumps(to_plain(part)))) == part


def test_every_term_of_the_catalogue_can_be_sent():
    for entry in METHODS.values():
        for term in entry.terms.values():
            assert from_plain(Term, json.loads(json.dumps(to_plain(term())))) == term()


def test_names_are_unique_below_their_base():
    def below(base):
        return [kind for each in base.__subclasses__() for kind in (each, *below(each))]

    for base in (Term, ClientProfiler, ModuleRebuilder):
        names = [kind.__name__ for kind in set(below(base)) if kind.__module__.startswith("fedrelay.")]
        assert len(names) == len(set(names))


class Own(ProximalPenalty):
    def add_gradient(self, gradient, theta, context):
        """A plug-in's term that does nothing."""


def renamed(name):
    return type(name, (Own,), {"__module__": __name__})


@pytest.fixture
def own():
    register("own", summary="", terms={"own": Own})
    yield Own
    del METHODS["own"], REGISTERED[f"{__name__}.Own"]


def test_a_plug_in_is_named_with_its_module(own):
    plain = json.loads(json.dumps(to_plain(own(mu=0.3))))
    assert plain["is"] == f"{__name__}.Own"
    assert from_plain(Term, plain) == own(mu=0.3)
    with pytest.raises(SpecError, match="unknown part 'Own'"):
        from_plain(Term, {**plain, "is": "Own"})
    with pytest.raises(SpecError, match="unknown part"):
        from_plain(ClientProfiler, plain)


@pytest.mark.parametrize("name", ["Own", "ProximalPenalty", "Other"])
def test_a_class_that_was_not_registered_is_refused(own, name):
    stranger = renamed(name)
    with pytest.raises(SpecError, match=rf"^{__name__}\.{name}: cannot be sent to nodes; [^\n]*$"):
        to_plain(stranger())
    if name != "Own":
        with pytest.raises(SpecError, match=f"unknown part '{__name__}.{name}'"):
            from_plain(Term, {"is": f"{__name__}.{name}"})
    assert type(from_plain(Term, to_plain(ProximalPenalty()))) is ProximalPenalty
    assert type(from_plain(Term, to_plain(own()))) is own


def test_a_plug_in_may_use_the_class_names_of_the_package():
    mean = type("Mean", (Mean,), {"__module__": __name__})
    prox = renamed("ProximalPenalty")
    register("own-mean", summary="", merge=mean, terms={"own": prox})
    assert parse_method("own-mean").merge is mean
    assert parse_method("fedavg").merge is Mean
    assert type(from_plain(Term, to_plain(prox()))) is prox
    assert type(from_plain(Term, to_plain(ProximalPenalty()))) is ProximalPenalty
    del METHODS["own-mean"], REGISTERED[f"{__name__}.ProximalPenalty"]


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"is": "Popen", "args": "rm"}, "unknown part 'Popen'"),
        ({"is": "LossTerm"}, "unknown part 'LossTerm'"),
        ({"is": "ProximalPenalty", "mu": "much"}, "ProximalPenalty.mu: must be a number"),
        ({"is": "ProximalPenalty", "code": "print(1)"}, "unknown key 'code'"),
        ("ProximalPenalty", "a part must be a mapping of settings, got str"),
        ({}, "unknown part 'None'"),
    ],
)
def test_anything_else_is_refused(plain, message):
    with pytest.raises(SpecError, match=message):
        from_plain(Term, plain)


def test_a_model_is_built_in_the_form_that_terms_need():
    plain = ZooModelRebuilder(name="cnn-s", shape=(1, 8, 8), classes=4, kind="image")
    fused = plain.model_copy(update={"terms": (FeatureFusion(),)})
    assert FlatLayout.of(fused.build()).size > FlatLayout.of(plain.build()).size
    assert plain.build()(torch.zeros(2, 1, 8, 8)).shape == (2, 4)
