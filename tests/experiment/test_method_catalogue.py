"""The catalogue and the + grammar."""

from __future__ import annotations

import pytest

from fedrelay.errors import SpecError
from fedrelay.experiment import method_catalogue
from fedrelay.experiment.comparison_runs import experiments
from fedrelay.experiment.method import build_method, with_train_settings_of_method
from fedrelay.experiment.method_catalogue import METHODS, MethodEntry, load_plugins
from fedrelay.experiment.method_grammar import parse_method, refuse_misplaced_options
from fedrelay.experiment.part_docs import meaning
from fedrelay.experiment.spec import comparison, experiment
from fedrelay.grouping.grouping import Grouping
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.proximal_penalty import ProximalPenalty
from fedrelay.local.terms.tensor_declarations import ClientState, Payload, ServerState
from fedrelay.merge.last_route import LastRoute
from fedrelay.merge.mean import Mean
from fedrelay.report.differing_settings import differing_settings
from fedrelay.routes.chains import Chains
from fedrelay.routes.ring import Ring
from fedrelay.routes.singletons import Singletons


def test_names_bring_their_parts():
    method = build_method(experiment("fedseq+fedprox", terms={"prox": {"mu": 0.5}}, route={"loops": 2}))
    assert method.route == Chains(loops=2)
    assert method.terms == (ProximalPenalty(mu=0.5),)
    assert method.merge == Mean()
    assert method.grouping is not None


def test_a_grouping_is_chosen_by_its_options():
    method = build_method(experiment("fedseq", grouping={"assign": "greedy", "distance": "cosine"}))
    assert method.grouping == Grouping(assign="greedy", distance="cosine")
    assert build_method(experiment("fedseq")).grouping == Grouping()


def test_a_method_says_how_to_train_where_the_spec_does_not():
    def training(method, **settings):
        train = with_train_settings_of_method(experiment(method, **settings)).train
        return train.schedule.name, train.clip

    assert training("relay") == ("cosine", 1.0)
    assert training("relay+fedprox", train={"clip": 0}) == ("cosine", 0.0)
    assert training("relay", train={"schedule": "constant", "clip": 5}) == ("constant", 5.0)
    assert training("fedseq") == (None, None)
    assert training("fedseq", train={"schedule": "cosine"}) == ("cosine", None)


def test_two_names_that_say_how_to_train_are_refused(monkeypatch):
    monkeypatch.setitem(METHODS, "careful", MethodEntry("", terms={"prox": ProximalPenalty}, clip=0.1))
    with pytest.raises(SpecError, match="'relay' and 'careful' both bring a clip; keep one"):
        parse_method("relay+careful")


def test_comparisons_leave_to_methods_what_is_not_set():
    plain, own = (
        [each.train for _, each in experiments(comparison(["fedseq", "relay"], **settings))]
        for settings in ({}, {"train": {"clip": 0, "schedule": "constant"}})
    )
    shown = differing_settings({each.method: each for _, each in experiments(comparison(["fedseq", "relay"]))})
    assert {"train.schedule.name", "train.clip"} <= set(shown)
    assert [(train.schedule.name, train.clip) for train in plain] == [(None, None), ("cosine", 1.0)]
    assert [(train.schedule.name, train.clip) for train in own] == [("constant", 0.0), ("constant", 0.0)]


def test_what_nobody_brings_is_ordinary_federated_learning():
    method = build_method(experiment("fedprox"))
    assert (method.route, method.merge, method.grouping) == (Singletons(), Mean(), None)


def test_a_route_has_its_default_merge():
    assert build_method(experiment("fedcyclic")).merge == LastRoute()
    assert build_method(experiment("fedcyclic+fedprox")).route == Ring()


def test_the_order_of_names_does_not_matter():
    one, two = parse_method("fedseq+fedprox"), parse_method("fedprox + fedseq")
    assert dict(one.parts()) == dict(two.parts())


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("fedsec", "method: unknown name 'fedsec' (did you mean 'fedseq'?); 'fedrelay methods' lists all; a method of"),
        (
            "xyz",
            "method: unknown name 'xyz'; 'fedrelay methods' lists all; a method of your own needs its module: --plug",
        ),
        ("fedseq+", "a name is missing"),
        ("fedseq+fedcyclic", "'fedseq' and 'fedcyclic' both bring a route; keep one"),
        ("fedavg+fedseq", "'fedavg' and 'fedseq' both bring a route; keep one"),
        ("fedprox+fedprox", "duplicate name 'fedprox'"),
    ],
)
def test_conflicts_are_refused(monkeypatch, method, message):
    monkeypatch.setattr(method_catalogue, "LOADED_PLUGINS", {})
    with pytest.raises(SpecError) as refused:
        parse_method(method)
    assert message in str(refused.value)


def test_an_unknown_name_is_answered_with_what_plug_ins_registered(monkeypatch):
    monkeypatch.setattr(method_catalogue, "LOADED_PLUGINS", {})
    load_plugins(["json"])
    with pytest.raises(SpecError, match=r"lists all; loaded plug-ins \(json\) registered no method$"):
        parse_method("snake")
    monkeypatch.setitem(METHODS, "snakes", METHODS["fedavg"])
    with pytest.raises(SpecError, match=r"\(did you mean 'snakes'\?\); .* \(json\) registered snakes$"):
        parse_method("snake")


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (
            "fedseq",
            {"route": {"lops": 2}},
            "route.lops: unknown key 'lops' (did you mean 'loops'?); allowed: order, given, handover, loops",
        ),
        ("fedseq", {"route": {"loops": 0}}, "route.loops: must be greater than or equal to 1, got 0"),
        ("fedseq", {"grouping": {"max_clients": "x"}}, "grouping.max_clients: must be a whole number"),
        ("fedavg", {"grouping": {"max_clients": 3}}, "grouping: method 'fedavg' forms no groups"),
        ("fedseq", {"grouping": {"distance": "kl"}}, "grouping.distance: has no effect with assign 'random'"),
        ("fedavg", {"route": {"loops": 2}}, "route.loops: unknown key 'loops'; allowed: none"),
        (
            "fedavg",
            {"terms": {"prox": {"mu": 1}}},
            "terms.prox: unknown term 'prox'; allowed: none in method 'fedavg'",
        ),
        ("fedprox", {"terms": {"prox": 3}}, "terms.prox: must be a mapping of options, got 3"),
        (
            "fedprox",
            {"terms": {"prox": {"mu": -1}}},
            "terms.prox.mu: must be greater than or equal to 0, got -1",
        ),
        (
            "fedavg",
            {"merge": {"weights": "unifrom"}},
            "merge.weights: must be 'samples' or 'uniform', got 'unifrom' (did you mean 'uniform'?)",
        ),
    ],
)
def test_options_are_checked_against_the_method(method, options, message):
    with pytest.raises(SpecError) as refused:
        build_method(experiment(method, **options))
    assert message in str(refused.value)


@pytest.mark.parametrize("name", METHODS)
def test_every_name_has_a_summary_and_brings_a_part(name):
    assert METHODS[name].summary, f"{name!r} has no summary; METHODS in experiment/method_catalogue.py needs one line"
    assert METHODS[name].parts(), f"{name!r} brings no part; give it a route, grouping, terms, merge or warm-up"


class TestComparisons:
    def test_methods_in_order_seeds_within(self):
        runs = experiments(comparison(["fedavg", "fedseq"], seeds=[3, 4], rounds=7))
        assert [(entry.name, run.seed) for entry, run in runs] == [
            ("fedavg", 3),
            ("fedavg", 4),
            ("fedseq", 3),
            ("fedseq", 4),
        ]
        assert {run.rounds for _, run in runs} == {7}

    def test_common_options_go_to_the_methods_that_take_them(self):
        runs = experiments(
            comparison(["fedavg", "fedseq", "fedprox"], grouping={"max_clients": 5}, terms={"prox": {"mu": 3}})
        )
        found = {entry.name: (dict(run.grouping), dict(run.terms)) for entry, run in runs}
        assert found == {
            "fedavg": ({}, {}),
            "fedseq": ({"max_clients": 5}, {}),
            "fedprox": ({}, {"prox": {"mu": 3}}),
        }

    def test_own_settings_win(self):
        entry = {
            "method": "fedseq",
            "label": "mine",
            "grouping": {"max_clients": 2},
            "train": {"lr": 0.5},
            "fraction": 0.9,
        }
        ((_, run),) = experiments(comparison([entry], grouping={"max_clients": 5}, lr=0.1, epochs=3))
        assert (run.grouping["max_clients"], run.train.lr, run.train.epochs, run.fraction) == (2, 0.5, 3, 0.9)

    @pytest.mark.parametrize(
        ("methods", "options", "message"),
        [
            (
                ["fedavg"],
                {"grouping": {"max_clients": 5}},
                "grouping: no method of this comparison takes these options",
            ),
            (
                ["fedavg", "fedseq"],
                {"grouping": {"bogus": 5}},
                "grouping: no method of this comparison takes these options",
            ),
            (["fedavg", "fedsec"], {}, "did you mean 'fedseq'?"),
            ([{"method": "fedseq", "train": {"lr": -1}}], {}, "train.lr: must be greater than 0"),
            ([{"method": "fedseq", "route": {"x": 1}}], {}, "route.x: unknown key"),
        ],
    )
    def test_mistakes_show_before_anything_runs(self, methods, options, message):
        with pytest.raises(SpecError) as refused:
            experiments(comparison(methods, **options))
        assert message in str(refused.value)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("fedstar+fedadam", "models are never merged, so 'fedadam' has no effect"),
        ("fedstar+scaffold", "models are never merged, which the term 'control' needs"),
        ("centralized+wfsl", "all data are pooled, so there is nothing to warm up"),
        ("fedgsp+feddyn+fedadam", "'feddyn' and 'fedadam' both bring a merge"),
        ("wfsl+shared-raw", "'wfsl' and 'shared-raw' both bring a warmup"),
        ("fedseq+spfl", "'fedseq' and 'spfl' both bring a route"),
        ("feddc+scaffold", "'feddc' and 'scaffold' both bring the term 'control'"),
    ],
)
def test_what_makes_no_sense_together_is_refused(method, message):
    with pytest.raises(SpecError, match=message):
        build_method(experiment(method))


def test_ewc_travels_on_a_ring_by_default():
    assert build_method(experiment("ewc")).route == Ring()
    assert build_method(experiment("ewc")).merge == LastRoute()
    assert build_method(experiment("fedseq+ewc")).merge == Mean()


def test_methods_come_with_their_own_defaults():
    found = build_method(experiment("fedgsp"))
    assert found.grouping == Grouping(assign="icg", profile="counts", leftovers="drop")
    assert found.merge == Mean(weights="uniform")
    assert build_method(experiment("fedgsp+fedadam")).merge.weights == "samples"
    assert build_method(experiment("feddc")).terms[0].alpha == 0.01
    assert build_method(experiment("feddyn")).terms[0].alpha == 0.1


@pytest.mark.parametrize("method", ["fedseqinter+{}", "{}+fedseqinter"])
def test_fedseqinter_brings_its_paper_s_strengths_of_terms(method):
    assert build_method(experiment(method.format("fedprox"))).terms == (ProximalPenalty(mu=1.0),)
    assert build_method(experiment(method.format("feddyn"))).terms[0].alpha == 1.0
    assert build_method(experiment(method.format("feddc"))).terms[0].alpha == 0.01
    assert build_method(experiment(method.format("fedprox"), terms={"prox": {"mu": 0.2}})).terms == (
        ProximalPenalty(mu=0.2),
    )


def test_a_method_that_counts_its_groups_takes_no_bounds():
    plan = parse_method("fedgsp")
    taken = plan.options("grouping", Grouping)
    assert {"assign", "profile", "iterations", "leftovers"} <= set(taken)
    assert not {"groups", "max_clients", "min_samples", "distance", "clusters"} & set(taken)
    assert "max_clients" in parse_method("fedseq").options("grouping", Grouping)


def test_options_say_which_names_they_take():
    fields = Mean.model_fields
    assert meaning(fields["weights"]) == "weight of each route: by its samples, or uniform"
    assert meaning(Grouping.model_fields["assign"]) == "the assigner: random, kmeans, greedy or icg"
    assert meaning(Grouping.model_fields["groups"]).startswith("icg: number of groups")


def test_a_term_of_the_model_belongs_to_warm_ups_too():
    found = build_method(experiment("fedavg-first+fedfusion+fedprox", warmup={"rounds": 3}, rounds=5))
    warm, own = found.phases(5)
    assert [type(term).__name__ for term in warm.terms] == ["FeatureFusion"]
    assert [type(term).__name__ for term in own.terms] == ["FeatureFusion", "ProximalPenalty"]


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (ClientState("drift"), None),
        (ClientState("control"), "both have a tensor 'control'; each needs a name of its own"),
        (ServerState("control"), "the terms 'control' and 'rival' both have a tensor 'control'"),
        (Payload("control"), "both have a tensor 'control'"),
        (ServerState("control-change"), "both have a tensor 'control-change'"),
    ],
)
def test_terms_that_would_write_over_each_other_are_refused(monkeypatch, tensor, message):
    class Rival(Term):
        """Another term."""

        tensors = (tensor,)

    monkeypatch.setitem(METHODS, "rival", MethodEntry("another term", terms={"rival": Rival}))
    if message is None:
        assert list(parse_method("scaffold+rival").terms) == ["control", "rival"]
        return
    with pytest.raises(SpecError, match=message):
        parse_method("scaffold+rival")


def test_no_two_terms_of_the_catalogue_get_in_each_others_way():
    terms = {term for entry in METHODS.values() for term in entry.terms.values()}
    for at_clients in (True, False):
        names = [
            tensor.name for term in terms for tensor in term.tensors if isinstance(tensor, ClientState) is at_clients
        ]
        assert len(names) == len(set(names))


def test_own_options_of_a_term_go_over_the_common_ones():
    loud = {"method": "fedavg+dp", "label": "loud", "terms": {"dp": {"noise": 3}}}
    compared = comparison(["fedavg+dp", loud], terms={"dp": {"clip": 0.25}})
    found = [build_method(experiment).terms[0] for _, experiment in experiments(compared)]
    assert [(term.clip, term.noise) for term in found] == [(0.25, 1.0), (0.25, 3.0)]


def test_options_at_the_wrong_place_get_their_name():
    refuse_misplaced_options(["fedseq"], {"rounds": 3, "unheard_of": 1})
    for methods, name, place in (
        (["fedseq"], "loops", "route.loops"),
        (["fedavg", "spfl+fedprox"], "mu", "terms.prox.mu"),
        (["fedseq"], "max_clients", "grouping.max_clients"),
    ):
        with pytest.raises(SpecError, match=f"{name}: is an option of a part of .*; use {place}"):
            refuse_misplaced_options(methods, {name: 1})
