"""FedStar: how models are mixed before they set off."""

from __future__ import annotations

import math

import pytest
import torch
from tests.conftest import make_federation

import fedrelay as fr
from fedrelay.errors import SpecError
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment, validate
from fedrelay.local.evaluation import headline_score
from fedrelay.models.flat_layout import FlatLayout, FlatModule
from fedrelay.routes.all_to_all import AllToAll
from fedrelay.routes.arrival import Arrival, HopReport
from fedrelay.routes.base import PlanningContext
from fedrelay.routes.mixing import accuracy_weights, mix_models
from fedrelay.routes.plan import Mixing
from fedrelay.runtime.run_state import RunState
from fedrelay.runtime.server import Server
from fedrelay.tasks.classification import Classification

MODELS = {0: torch.tensor([1.0, 0.0]), 1: torch.tensor([3.0, 6.0]), 2: torch.tensor([5.0, 0.0])}
OWNERS = {0: 10, 1: 11, 2: 12}


def nobody_asks(model, client):
    raise AssertionError("nobody looks at accuracies")


def by_first_value(model, client):
    """An accuracy that depends on the model and on who asks."""
    return float(model[0]) / 10 if client == 10 else 0.5


def test_others_count_the_same():
    found = mix_models(MODELS, Mixing(0.5), OWNERS, nobody_asks)
    torch.testing.assert_close(found[0], torch.tensor([2.5, 1.5]))
    torch.testing.assert_close(found[1], torch.tensor([3.0, 3.0]))
    torch.testing.assert_close(found[2], torch.tensor([3.5, 1.5]))


def test_a_share_of_all_but_one_gives_everybody_the_mean():
    found = mix_models(MODELS, Mixing(2 / 3), OWNERS, nobody_asks)
    for model in found.values():
        torch.testing.assert_close(model, torch.tensor([3.0, 2.0]))


@pytest.mark.parametrize("temperature", [None, 0.3])
def test_nothing_of_others_leaves_models_alone(temperature):
    found = mix_models(MODELS, Mixing(0.0, temperature), OWNERS, by_first_value)
    assert all(torch.equal(found[number], model) for number, model in MODELS.items())


def test_others_count_by_their_accuracy_on_the_client_s_own_samples():
    asked = []

    def noted(model, client):
        asked.append((float(model[0]), client))
        return by_first_value(model, client)

    found = mix_models(MODELS, Mixing(0.5, 0.1), OWNERS, noted)
    assert sorted(asked) == [(1.0, 11), (1.0, 12), (3.0, 10), (3.0, 12), (5.0, 10), (5.0, 11)]
    best = math.exp(5) / (math.exp(3) + math.exp(5))  # accuracies .3 and .5 over .1
    torch.testing.assert_close(found[0], torch.tensor([0.5 + 0.5 * (3 * (1 - best) + 5 * best), 3 * (1 - best)]))
    torch.testing.assert_close(found[1], torch.tensor([3.0, 3.0]))  # to whom both others are as good
    weights = accuracy_weights(MODELS, 0, 10, 0.1, by_first_value)
    assert weights == {1: pytest.approx(1 - best), 2: pytest.approx(best)}


def test_one_model_alone_has_nobody_to_mix_with():
    assert mix_models({4: MODELS[1]}, Mixing(0.5, 1.0), {4: 11}, nobody_asks)[4] is MODELS[1]


@pytest.mark.parametrize("weights", ["uniform", "accuracy"])
def test_who_is_away_neither_mixes_nor_is_mixed_with(weights):
    options = {"data": "digits", "clients": 6, "fraction": 1.0, "alpha": 1.0, "route.weights": weights}
    absent = fr.run("fedstar", rounds=2, faults=[{"what": "dropout", "clients": [1, 4], "first": 2}], **options)
    assert absent.fault_events == {"dropout": 2}
    assert absent.client_updates == 6 + 4
    assert absent.transfers["c2c"] == 6 * 5 + 4 * 3


def test_the_plan_says_how():
    context = PlanningContext(4, 1.0, 1)
    assert AllToAll().plan(context, 1).mixing == Mixing(0.5, None)
    assert AllToAll(beta=0.2, weights="accuracy", temperature=0.4).plan(context, 1).mixing == Mixing(0.2, 0.4)
    with pytest.raises(SpecError, match=r"route\.temperature: has no effect with weights 'uniform'"):
        validate(AllToAll, {"temperature": 0.5}, "route.")


def server_of(run):
    return Server(run.prepared, run.planner)


def test_accuracy_is_that_on_the_samples_of_the_client(toy, linear):
    server = server_of(prepare(experiment("fedstar"), federation=toy, module=linear))
    bench = FlatModule(torch.nn.Linear(4, 3), FlatLayout.of(linear))
    weights = FlatLayout.of(linear).flatten(linear)
    found = [server._accuracy_at(weights, client) for client in range(6)]
    assert found == [headline_score(bench, weights, Classification(), toy.train_samples(client)) for client in range(6)]
    assert len(set(found)) > 1


@pytest.mark.parametrize(("weights", "counts"), [("uniform", [1, 0, 1, 1, 1, 1]), ("samples", [5, 0, 3, 8, 4, 7])])
def test_clients_without_a_hop_are_evaluated_with_the_first_model(linear, weights, counts):
    federation = make_federation([5, 0, 3, 8, 4, 7])
    wanted = experiment("fedstar", fraction=0.5, merge={"weights": weights})
    server = server_of(prepare(wanted, federation=federation, module=linear))
    first = FlatLayout.of(linear).flatten(linear)
    twice = (HopReport(6, 2, 0.1),)  # client 2 holds three samples and was visited twice
    waiting = {2: Arrival(2, (2,), first + 1, twice), 4: Arrival(4, (4,), first + 2, (HopReport(4, 1, 0.1),))}
    expected = first + (1 * counts[2] + 2 * counts[4]) / sum(counts)
    torch.testing.assert_close(server.current_model(RunState(2, first, waiting=waiting)), expected)
    assert torch.equal(server.current_model(RunState(0, first)), first)


def test_accuracies_make_a_difference_and_no_worker_does(toy):
    settings = {"data": toy, "model": {"name": "mlp", "hidden": (4,)}, "rounds": 3, "fraction": 1.0, "lr": 0.5}
    by_accuracy = {"weights": "accuracy", "temperature": 0.1}
    one, two = (fr.run("fedstar", route=by_accuracy, workers=workers, **settings) for workers in (1, 2))
    assert torch.equal(one.weights, two.weights)
    assert not torch.equal(one.weights, fr.run("fedstar", workers=1, **settings).weights)
