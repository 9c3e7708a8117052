"""Requests in, replies out; a request that cannot be answered does nothing but say so in one line."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedrelay.engines.flower.messages import BadMessage, Message, pack_models, scalar_names
from fedrelay.engines.flower.node.owner_privacy_policy import OwnerPrivacyPolicy
from fedrelay.engines.flower.node.service import HIDDEN_ERROR
from fedrelay.engines.flower.node_facts import NodeFacts
from fedrelay.errors import EngineError, SpecError
from fedrelay.experiment.part_serialization import REGISTERED, to_plain
from fedrelay.experiment.spec import TrainSettings
from fedrelay.grouping.profiles.confidence import ConfidenceProfiler
from fedrelay.local.optimizers.state_terms import optimizer_state_terms
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.control_variates import ControlVariates
from fedrelay.local.terms.proximal_penalty import ProximalPenalty


def with_job(request, **changes):
    fields = {**json.loads(request.header["job"]), **changes}
    return replace(request, header={**request.header, "job": json.dumps(fields)})


def test_facts_have_no_histogram_unless_the_owner_shares_it(make_service):
    facts = make_service().answer(Message({"kind": "describe"})).header
    assert {name: facts[name] for name in ("samples", "tests", "classes", "shape", "kind", "histogram")} == {
        "samples": 8,
        "tests": 4,
        "classes": 2,
        "shape": [3],
        "kind": "tabular",
        "histogram": None,
    }
    assert make_service(share_histogram=True).facts().histogram == (4, 4)
    assert facts["fingerprint"] == make_service().facts().fingerprint  # the same salt after a restart


def test_a_shared_histogram_may_have_noise(make_service):
    facts = make_service(share_histogram=True, histogram_epsilon=0.01).facts()
    assert facts.histogram_epsilon == 0.01
    assert facts.histogram != (4, 4)
    assert make_service(share_histogram=True, histogram_epsilon=0.01).facts().histogram == facts.histogram
    for changes, problem in (
        ({"histogram": (4, 5), "histogram_epsilon": None}, "the histogram has another number of samples"),
        ({"histogram": (10**12, 0)}, "more samples of a class than there are samples"),
        ({"histogram": None}, "noise needs a histogram of one label a sample"),
        ({"histogram_epsilon": 1e-20}, "greater than or equal to 0.000001"),
    ):
        with pytest.raises(ValueError, match=problem):
            NodeFacts.model_validate({**facts.model_dump(), **changes})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "needs a histogram that is shared"),
        ({"share_histogram": True, "validation": 0.5}, "validation samples are chosen by label"),
    ],
)
def test_noise_that_would_protect_less_than_it_says_is_refused(make_service, options, problem):
    with pytest.raises(SpecError, match=f"histogram_epsilon: {problem}"):
        make_service(histogram_epsilon=1.0, **options)


def test_facts_name_the_plug_ins_that_the_owner_allows(make_service):
    assert make_service(plugins=("lab.pairs",)).answer(Message({"kind": "describe"})).header["plugins"] == ["lab.pairs"]


def test_a_hop_is_a_step_of_gradient_descent(service, ask):
    """All eight samples in one batch, from zero weights: every class has a chance of one half."""
    wanted = ask.job(batch_size=8, lr=0.1)
    reply = service.answer(ask.hop(wanted))
    x, y = (part.numpy() for part in service.data.train_samples(0))
    error = 0.5 - np.eye(2)[y]
    expected = np.concatenate([(error.T @ x / 8).ravel(), error.mean(axis=0)]) * -0.1
    np.testing.assert_allclose(reply.arrays["models"], [expected], atol=1e-7)
    assert (reply.header["request"], reply.header["samples"], reply.header["steps"]) == (100, 8, 1)
    assert reply.header["loss"] == pytest.approx(np.log(2), abs=1e-6)
    assert reply.header["names"] == ["model"]


class Homesick(Term):
    """Pulls towards the model of the round without a word about it."""

    def add_gradient(self, gradient, theta, context):
        gradient.add_(theta - context.round_model)


def test_a_node_does_not_take_the_received_model_for_that_of_the_round(service, ask, monkeypatch, caplog):
    monkeypatch.setitem(REGISTERED, f"{__name__}.Homesick", Homesick)
    with pytest.raises(EngineError, match=HIDDEN_ERROR):  # an error of somebody's own code may quote samples
        service.answer(ask.hop(ask.job(Homesick())))
    assert "round_model is not sent to clients; needs_round_model" in caplog.text


def test_client_state_is_read_by_its_version(service, ask):
    wanted = ask.job(ControlVariates())
    first = service.answer(ask.hop(wanted, request=100))
    again = service.answer(ask.hop(wanted, request=101, state=0))
    assert np.array_equal(first.arrays["models"], again.arrays["models"])
    after = service.answer(ask.hop(wanted, request=102, state=100, merges=1))
    assert not np.array_equal(first.arrays["models"], after.arrays["models"])
    service.answer(ask.hop(wanted, request=103, state=102, oldest_needed=102))
    with pytest.raises(EngineError, match="the state of this client is lost"):
        service.answer(ask.hop(wanted, request=104, state=100))


def test_a_node_commits_its_control_variate_when_the_number_of_merges_grows(service, ask):
    """Zero weights and c = 0: until the merge, every hop is the same, and a second one adds nothing to the payload."""
    wanted = ask.job(ControlVariates(), batch_size=8)
    first = service.answer(ask.hop(wanted, request=100, merges=3))
    second = service.answer(ask.hop(wanted, request=101, state=100, merges=3))
    names = first.header["names"]
    model, change = (names.index(name) for name in ("model", "payload control-change"))
    assert np.array_equal(first.arrays["models"][model], second.arrays["models"][model])
    assert np.abs(first.arrays["models"][change]).max() > 0
    assert not second.arrays["models"][change].any()
    later = service.answer(ask.hop(wanted, request=102, state=101, merges=4))
    # One step from zero: the gradient g gains −c_k = −(0 − 0 + (0 − θ)/η) = −g, so the model stays where it is.
    np.testing.assert_allclose(later.arrays["models"][model], 0, atol=1e-7)


def test_an_evaluation_counts_the_owners_test_samples(service, ask):
    wanted = ask.hop(ask.job())
    model = torch.zeros(8)
    model[6] = 1.0  # the first class, always
    evaluation = service.answer(pack_models({**wanted.header, "kind": "evaluate"}, {"model": model}))
    assert evaluation.header["weight"] == 4
    correct, predicted, actual = evaluation.arrays["sums"].reshape(3, 2).tolist()
    assert (correct, predicted, actual) == ([2, 0], [4, 0], [2, 2])
    assert service.facts().histogram is None  # the counts of held-out samples are shared all the same


def test_validation_samples_are_kept_from_training_and_evaluated_on_request(make_service, ask):
    service = make_service(validation=0.5, share_histogram=True)
    facts = service.facts()
    assert (facts.samples, facts.validations, facts.tests, facts.histogram) == (4, 4, 4, (2, 2))
    assert service.answer(ask.hop(ask.job())).header["samples"] == 4
    header = {**ask.hop(ask.job()).header, "kind": "evaluate", "on": "validation"}
    model = torch.zeros(8)
    model[6] = 1.0  # the first class, always
    evaluation = service.answer(pack_models(header, {"model": model}))
    assert evaluation.arrays["sums"].reshape(3, 2).tolist() == [[2, 0], [4, 0], [2, 2]]
    assert facts.fingerprint != make_service().facts().fingerprint
    with pytest.raises(EngineError, match="this node keeps no validation samples; start it with --validation"):
        make_service().answer(pack_models(header, {"model": model}))


def test_a_node_of_sealed_routes_evaluates_only_if_its_owner_says_so(make_service, ask, tmp_path):
    """The server chooses the model: the sums of an evaluation count the labels of the samples, exactly."""
    pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")
    from cryptography.hazmat.primitives.asymmetric import ec

    from fedrelay.engines.flower.sealing import NodeIdentity

    key = ec.generate_private_key(ec.SECP384R1())
    sealed = {"identity": NodeIdentity.load(key, tmp_path), "roster": {"a": key.public_key()}, "validation": 0.25}
    header = {**ask.hop(ask.job()).header, "kind": "evaluate", "on": "test"}
    request = pack_models(header, {"model": torch.zeros(8)})
    closed, opened = make_service(**sealed), make_service(**sealed, share_evaluation=True)
    assert (closed.facts().tests, closed.facts().validations) == (0, 0)
    with pytest.raises(EngineError, match="its owner has not set --share-evaluation"):
        closed.answer(request)
    assert (opened.facts().tests, opened.facts().validations) == (4, 2)
    assert opened.answer(request).header["weight"] == 4


def test_a_node_that_requires_privacy_evaluates_nothing(make_service, ask):
    service = make_service(validation=0.5, policy=OwnerPrivacyPolicy(1.0))
    assert (service.facts().validations, service.facts().tests) == (0, 0)
    header = {**ask.hop(ask.job()).header, "kind": "evaluate", "on": "validation"}
    with pytest.raises(EngineError, match="an evaluation would leave this node without noise"):
        service.answer(pack_models(header, {"model": torch.zeros(8)}))


def profile_request(ask, **changes):
    wanted = ask.hop(ask.job())
    public = {"public inputs": np.ones((2, 3), np.float32), "public targets": np.array([0, 1])} | changes
    header = {**wanted.header, "kind": "profile", "profiler": to_plain(ConfidenceProfiler()), "client": 5}
    start = pack_models(header, {"start": torch.zeros(8)})
    return replace(start, arrays={**start.arrays, **public})


def test_a_profile_is_one_vector(service, ask):
    reply = service.answer(profile_request(ask))
    assert reply.arrays["vector"].shape == (2,)
    assert reply.arrays["vector"].sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"public inputs": np.ones((2, 4), np.float32)}, "another shape or type"),
        ({"public inputs": np.ones((2, 3))}, "another shape or type"),
        (
            {"public inputs": np.ones((0, 3), np.float32), "public targets": np.zeros(0, np.int64)},
            "another shape or type",
        ),
        ({"public targets": np.array([0.0, 1.0])}, "another shape or type"),
        ({"public targets": np.array([0, 1, 0])}, "another shape or type"),
        ({"public targets": np.array([0, 2])}, "other classes"),
        ({"public targets": np.array([-1, 0])}, "other classes"),
    ],
)
def test_public_samples_that_do_not_fit(changes, message, service, ask):
    with pytest.raises(BadMessage, match=message):
        service.answer(profile_request(ask, **changes))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"kind": "dance"}, "unknown kind of request"),
        ({"kind": ["request"]}, "unknown kind of request"),
        ({"kind": None}, "unknown kind of request"),
        ({"job": ""}, "the job cannot be read"),
        ({"job": None}, "the job cannot be read"),
        ({"job": "[]"}, "the job cannot be read"),
        ({"job": "[" * 100_000}, "the job cannot be read"),
        ({"run": "../../x"}, "run must have 16 hexadecimal digits"),
        ({"run": None}, "run must have 16 hexadecimal digits"),
        ({"request": -1}, "request must be a whole number"),
        ({"request": True}, "request must be a whole number"),
        ({"request": 1.5}, "request must be a whole number"),
        ({"typical_norm": float("nan")}, "typical_norm must be a finite number"),
        ({"typical_norm": "long"}, "typical_norm must be a finite number"),
        ({"oldest_needed": None}, "oldest_needed must be a whole number"),
        ({"hop": [1, 2]}, "hop must be six numbers"),
        ({"hop": [1, 0, 0, 5, -1, 1]}, "hop must be a whole number"),
        ({"hop": {"round": 1}}, "hop must be six numbers"),
        ({"tamper": {"what": "steal", "factor": 1}}, "unknown kind of tampering"),
        ({"tamper": {"what": "explode"}}, "factor must be a finite number"),
        ({"tamper": "explode"}, "unknown kind of tampering"),
        ({"names": ["recv", "recv"]}, "it has no models"),
        ({"names": ["other"]}, "it has no model to train"),
        ({"names": None}, "it has no models"),
        ({"names": [[1], {}]}, "its models have a wrong shape"),
    ],
)
def test_odd_headers(header, message, service, ask):
    request = ask.hop(ask.job())
    with pytest.raises((BadMessage, EngineError), match=message):
        service.answer(replace(request, header={**request.header, **header}))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"state": "first"}, "state must be a whole number"),
        ({"merges": None}, "merges must be a whole number"),
        ({"state": 7}, "the state of this client is lost"),
        ({"state": 7, "merged_from": [0]}, "merged_from must be empty"),
        ({"state": 7, "merged_from": "12"}, "merged_from must be empty"),
        ({"state": 7, "merged_from": [1, None]}, "merged_from must be a whole number"),
        ({"state": 7, "merged_from": [0, 8, 9]}, "the state of this client is lost"),
    ],
)
def test_odd_states(header, message, service, ask):
    with pytest.raises((BadMessage, EngineError), match=message):
        service.answer(ask.hop(ask.job(ControlVariates()), **header))


def test_states_of_another_model_are_not_used(service, ask):
    service.state_files.put(ask.run, 50, {"control": torch.zeros(3)})
    service.state_files.put(ask.run, 51, {"other": torch.zeros(8)})
    with pytest.raises(EngineError, match="belongs to another model"):
        service.answer(ask.hop(ask.job(ControlVariates()), state=50))
    with pytest.raises(EngineError, match="belongs to different methods"):
        service.answer(ask.hop(ask.job(ControlVariates()), state=52, merged_from=[0, 50, 51]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 1}, "this node has labels of 2 classes, the job has 1"),
        ({"classes": 10**9}, "classes must be a whole number from 0 to 100000"),
        ({"classes": "2"}, "classes must be a whole number"),
        ({"mean_size": 0}, "mean_size must be greater than 0"),
        ({"mean_size": None}, "mean_size must be a finite number"),
        ({"train": {"lr": "fast"}}, "train.lr"),
        ({"train": {"speed": 1}}, "train.speed"),
        ({"train": None}, "the job cannot be read"),
        ({"terms": [{"is": "Eval"}]}, "unknown part 'Eval'"),
        ({"terms": [{"is": "ProximalPenalty", "mu": "x"}]}, "ProximalPenalty.mu"),
        ({"terms": 3}, "the job cannot be read"),
        ({"terms": ["ProximalPenalty"]}, "a part must be a mapping"),
        ({"seed": "x"}, "the job cannot be read"),
        ({"guard": {"largest": -1}}, "guard.largest"),
        ({"guard": 3}, "the job cannot be read"),
        ({"model": None}, "start this node with --model"),
        ({"model": {"is": "ZooModel", "name": "mlp"}}, "ZooModel"),
        ({"model": {"is": "Exec", "code": "1"}}, "unknown part 'Exec'"),
        ({"layout": "0"}, "this node builds another model than the server"),
    ],
)
def test_bad_jobs(changes, message, service, ask):
    with pytest.raises((BadMessage, EngineError), match=message) as caught:
        service.answer(with_job(ask.hop(ask.job(ProximalPenalty())), **changes))
    assert len(str(caught.value).splitlines()) == 1
    assert service.answer(ask.hop(ask.job())).header["steps"] == 2  # the next request is answered as ever


def test_a_node_ignores_the_guards_check_on_public_samples(service, ask):
    guard = json.loads(ask.hop(ask.job()).header["job"])["guard"]
    assert service.answer(with_job(ask.hop(ask.job()), guard={**guard, "tolerance": 0.1})).header["steps"] == 2


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((1, 7), np.float32), "its models have a wrong shape"),
        (np.zeros((2, 8), np.float32), "its models have a wrong shape"),
        (np.zeros(8, np.float32), "its models have a wrong shape"),
        (np.zeros((1, 8), np.float64), "its models have type float64"),
        (np.zeros((1, 8), ">f4"), "its models have type >f4"),
        (np.zeros((1, 8), "U1"), "its models have type <U1"),
        (None, "it has no models"),
    ],
)
def test_wrong_arrays(array, message, service, ask):
    request = ask.hop(ask.job())
    with pytest.raises(BadMessage, match=message):
        service.answer(replace(request, arrays={} if array is None else {"models": array}))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_model_that_is_not_finite_is_refused_in_words(value, service, ask):
    reply = service.answer(ask.hop(ask.job(), {"recv": torch.full((8,), value)}))
    assert reply.header["refused"]
    assert not reply.arrays


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(
    [
        "kind",
        "job",
        "run",
        "hop",
        "merges",
        "typical_norm",
        "request",
        "tamper",
        "state",
        "merged_from",
        "oldest_needed",
        "names",
        "profiler",
        "client",
    ]
)
kinds = st.sampled_from(["hop", "profile", "evaluate"])


@given(kind=kinds, header=st.dictionaries(names, values, max_size=3))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_no_request_does_more_than_fail_in_one_line(kind, header, service, ask):
    request = ask.hop(ask.job(ControlVariates()), kind=kind)
    said = replace(request, header={**request.header, **header})
    try:
        reply = service.answer(said)
    except (BadMessage, EngineError) as error:
        words = str(error)
    else:
        words = str(reply.header["kind"])
    assert len(words.splitlines()) == 1
    assert len(words) <= 400


@given(
    name=st.sampled_from(["train", "terms", "seed", "classes", "mean_size", "guard", "model", "layout", "frozen"]),
    value=values,
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_no_job_does_more_than_fail_in_one_line(name, value, service, ask):
    with_it = with_job(ask.hop(ask.job(ControlVariates())), **{name: value})
    try:
        words = str(service.answer(with_it).header["kind"])
    except (BadMessage, EngineError) as error:
        words = str(error)
    assert len(words.splitlines()) == 1


def test_a_context_that_failed_in_the_middle_of_a_step_is_not_used_again(service, ask, monkeypatch):
    request = ask.hop(ask.job())
    good = service.answer(request)
    [first] = service.contexts.values()
    monkeypatch.setattr(first.hop_runner, "run", lambda *_: 1 / 0)
    with pytest.raises(EngineError, match=HIDDEN_ERROR):
        service.answer(request)
    assert np.array_equal(service.answer(request).arrays["models"], good.arrays["models"])
    assert first not in service.contexts.values()


def test_no_server_has_a_model_built_that_is_too_large(make_service, ask):
    request = ask.hop(ask.job())
    builder = json.loads(request.header["job"])["model"]
    builder |= {"name": "mlp", "hidden": [10**6, 10**6]}  # terabytes, if anybody built it
    giant = with_job(request, model=builder)
    with pytest.raises(EngineError, match=r"the model has 4,\d{3},\d{3},\d{3},\d{3} bytes"):
        make_service().answer(giant)
    with pytest.raises(EngineError, match="this node accepts at most 10"):
        make_service(largest_model=10).answer(request)


def test_an_optimiser_from_outside_needs_the_owners_permission(ask, service, make_service, tmp_path, monkeypatch):
    """Its module is not even imported."""
    (tmp_path / "evil_optim.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    request = ask.hop(ask.job(optimizer="evil_optim:Lion"))
    with pytest.raises(
        EngineError, match="evil_optim:Lion is not allowed here: start this node with --plugin evil_optim"
    ):
        service.answer(request)
    with pytest.raises(EngineError, match="evil_optim failed when it was imported"):
        make_service(plugins=("evil_optim",)).answer(request)
    with pytest.raises(EngineError, match=r"train\.schedule: evil_optim:rate is not allowed here.*\(it allows none\)"):
        service.answer(ask.hop(ask.job(schedule="evil_optim:rate")))
    assert service.answer(ask.hop(ask.job(optimizer="torch.optim:NAdam"))).header["steps"] == 2


def test_numbers_of_the_payload_are_in_the_header(ask, service):
    """A payload of one number takes no row of the models; a model in its place, or a number for a model, is refused."""
    train = TrainSettings(optimizer="adam", optimizer_state="payload")
    job = ask.job(*optimizer_state_terms(train), optimizer="adam", optimizer_state="payload")
    first = service.answer(ask.hop(job))
    assert first.header["names"] == ["model", "payload optimizer-mean", "payload optimizer-square"]
    assert first.header["scalars"] == {"payload optimizer-steps": 2.0}
    row = torch.zeros(job.layout.size)
    state = {"recv": row, "payload optimizer-mean": row, "payload optimizer-square": row + 1}
    again = pack_models(
        ask.hop(job).header, state | {"payload optimizer-steps": torch.tensor([5.0])}, scalar_names(job)
    )
    assert service.answer(again).header["scalars"] == {"payload optimizer-steps": 7.0}
    for bad in ({"payload optimizer-mean": 1.0}, {"recv": 1.0}, [1.0], {"payload optimizer-steps": "5"}):
        with pytest.raises(BadMessage):
            service.answer(replace(again, header={**again.header, "scalars": bad}))
    with pytest.raises(BadMessage, match="mixed up"):
        service.answer(ask.hop(job, {"recv": row, "payload optimizer-steps": row}))
