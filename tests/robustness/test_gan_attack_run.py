"""An attacker in a real run: the run stays as it was, and what is seen is measured."""

from __future__ import annotations

import os
import signal

import pytest
import torch

import fedrelay as fr
from fedrelay.errors import NoUpdateAcceptedError, SpecError
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment
from fedrelay.robustness import gan_attack_run
from fedrelay.robustness.gan_attack_run import GanAttackResult, GanObservation, run_gan_attack

SETTINGS = {"clients": 10, "alpha": 100, "rounds": 3, "fraction": 1.0, "batch_size": 32, "workers": 1}
GROUPS = {"grouping": {"assign": "random", "max_clients": 5}}
HARD_TIMES = {"recovery": {"repeats": 2, "min_arrivals": 7}, "faults": [{"what": "dropout", "rate": 0.4}]}
ATTACKER = 4


@pytest.fixture(autouse=True)
def a_quick_look(monkeypatch):
    """Few images, compared by a few of their pixels."""
    monkeypatch.setattr(gan_attack_run, "MOST_COMPARED", 300)
    monkeypatch.setattr(gan_attack_run, "feature_network", lambda *_, **__: lambda images: images[:, 0, 3:5, 3])


def beside_the_honest_run(method, **more):
    """What an attacker gathers, in a run that is the one without it."""
    settings = {**SETTINGS, **more}
    outcome, honest = run_gan_attack(experiment(method, **settings), ATTACKER, epochs=1), fr.run(method, **settings)
    assert torch.equal(outcome.result.weights, honest.weights)
    assert outcome.result.history == honest.history
    timeless = ("seconds", "selection_seconds")
    one, other = ({k: v for k, v in each.summary().items() if k not in timeless} for each in (outcome.result, honest))
    assert one == other
    return outcome


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("fedavg", {}),
        ("fedseq", GROUPS),
        ("fedseqinter", GROUPS),
        ("fedasyncseq", GROUPS),
        ("fedstar", {}),
        ("fedavg+scaffold", {}),
        ("fedavg+feddyn", {}),
        ("fedavg+moon", {}),
        ("fedseq+scaffold", GROUPS),
        ("wfsl", {"warmup": {"cycles": 1}}),
        ("fedavg", {"guard": {"norm": 2.0}}),
    ],
    ids=lambda part: part if isinstance(part, str) else "+".join(part) or "plain",
)
def test_the_run_is_the_one_without_an_attacker(method, more):
    outcome = beside_the_honest_run(method, **more)
    planner = prepare(experiment(method, **SETTINGS, **more)).planner
    plans = [planner.plan(round) for round in (1, 2, 3)]
    expected = [
        (plan.round, route.clients[index - 1] if index else None)
        for plan in plans
        for route in plan.routes
        for index, client in enumerate(route.clients)
        if client == ATTACKER
    ]
    assert [(observation.round, observation.predecessor) for observation in outcome.observations] == expected
    assert expected
    assert outcome.behind_others == sum(predecessor is not None for _, predecessor in expected)
    assert all(observation.fid_all > 0 for observation in outcome.observations)
    assert outcome.images.shape == (64, 1, 8, 8)
    assert outcome.first_at(0.0) == outcome.observations[0]
    assert outcome.first_at(1.1) is None


def test_hops_at_about_equal_accuracy():
    observations = [
        GanObservation(round, None, accuracy, None, round) for round, accuracy in enumerate((0.3, 0.62, 0.58, 0.9))
    ]
    outcome = GanAttackResult(ATTACKER, tuple(observations), None, None)
    assert outcome.nearest_to(0.61, 0.05) is observations[1]
    assert outcome.nearest_to(0.6, 0.05) is observations[1]  # as near as the next, and earlier
    assert outcome.nearest_to(0.59, 0.05) is observations[2]
    assert outcome.nearest_to(0.8, 0.05) is None


def test_where_time_runs_out():
    """Client 4 has the last turn of round 3, for which the deadline is too early."""
    outcome = beside_the_honest_run("fedcyclic", recovery={"deadline": 1.0})
    assert outcome.result.fault_events == {"deadline": 3}
    assert [observation.round for observation in outcome.observations] == [1, 2]


def test_where_clients_are_away_and_rounds_repeat():
    outcome = beside_the_honest_run("fedavg", **HARD_TIMES)
    assert outcome.result.fault_events["too few arrivals"] > 0
    assert len({observation.round for observation in outcome.observations}) < len(
        outcome.observations
    )  # a repeated round is seen twice


def test_where_the_work_of_the_client_before_is_refused():
    """The model came from the server then, as all others of the chain had sent nothing that counts."""
    everybody_else = [client for client in range(10) if client != ATTACKER]
    broken = [{"what": "nan", "rate": 1.0, "clients": everybody_else}]
    outcome = beside_the_honest_run("fedseq", **GROUPS, faults=broken, guard={"on_divergence": "skip"})
    assert [observation.predecessor for observation in outcome.observations] == [None] * 3


def test_a_run_without_accepted_updates_fails_with_an_attacker_too():
    hopeless = experiment("fedavg", **SETTINGS, faults=[{"what": "dropout", "rate": 1.0}])
    with pytest.raises(NoUpdateAcceptedError, match="no client update was accepted in any of the 3 rounds"):
        run_gan_attack(hopeless, ATTACKER, epochs=1)


def test_an_attacker_without_a_hop_draws_nothing():
    outcome = beside_the_honest_run("fedavg", faults=[{"what": "gone", "rate": 1.0, "clients": [ATTACKER]}])
    assert outcome.observations == ()
    assert outcome.images is None


def test_ctrl_c_stops_at_once():
    """Nothing would be saved at the end of the round."""
    seen = []

    def interrupt(observation):
        seen.append(observation)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_gan_attack(experiment("fedavg", **SETTINGS), ATTACKER, epochs=1, watch=interrupt)
    assert len(seen) == 1
    assert signal.getsignal(signal.SIGINT) == before


@pytest.mark.parametrize(
    ("method", "attacker", "message"),
    [
        ("fedavg", 10, "attacker: must be a client, one of 0 … 9, got 10"),
        ("fedavg", -1, "attacker: must be a client, one of 0 … 9, got -1"),
        ("centralized", 0, "attacker: 'centralized' has no clients that could attack"),
    ],
)
def test_what_cannot_be_attacked(method, attacker, message):
    with pytest.raises(SpecError, match=message):
        run_gan_attack(experiment(method, **SETTINGS), attacker)


def test_a_real_federation_refuses_the_attack():
    with pytest.raises(SpecError, match="the engine must be 'local' or 'ray', got 'flower'"):
        run_gan_attack(experiment("fedavg", engine="flower"), ATTACKER)


def test_an_attacker_needs_images_samples_and_epochs(toy, linear):
    with pytest.raises(SpecError, match="attacker: draws images, but the data 'toy' are tabular"):
        run_gan_attack(experiment("fedavg", **{**SETTINGS, "clients": 6}), ATTACKER, federation=toy, module=linear)
    wanted = experiment("fedavg", **{**SETTINGS, "clients": 1400})
    with pytest.raises(SpecError, match="attacker: needs at least two samples, client 1399 has 1"):
        run_gan_attack(wanted, 1399)
    with pytest.raises(SpecError, match="epochs: must be at least 1, got 0"):
        run_gan_attack(wanted, 0, epochs=0)
