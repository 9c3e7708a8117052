"""EWC: the Fisher information against its definition, how it travels, and FedProx where it is one everywhere."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from tests.local.terms.conftest import Problem, run_hop
from torch import nn

import fedrelay as fr
from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.fisher_information import draw_labels
from fedrelay.local.hop_context import HopContext
from fedrelay.local.optimizers.state_terms import optimizer_state_terms
from fedrelay.local.terms.fisher_penalty import FisherPenalty
from fedrelay.local.terms.proximal_penalty import ProximalPenalty
from fedrelay.merge.last_route import LastRoute
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.routes.arrival import Arrival, HopReport


def test_the_gradient_by_hand():
    gradient, received = torch.zeros(1), torch.ones(1)
    FisherPenalty(strength=0.5).add_gradient(
        gradient, received + 0.3, HopContext(received, received, payload={"fisher": torch.tensor([2.0])})
    )
    torch.testing.assert_close(gradient, torch.tensor([0.3]))


def fisher_of(module, x, y):
    """The mean over samples of the squared gradient, one by one."""
    total = 0
    for sample in range(len(y)):
        module.zero_grad()
        F.cross_entropy(module(x[sample : sample + 1]), y[sample : sample + 1]).backward()
        total = total + torch.cat([parameter.grad.flatten() for parameter in module.parameters()]) ** 2
    return total / len(y)


@pytest.mark.parametrize(("memory", "before"), [(0.0, 0.0), (1.0, 1.0), (0.5, 0.5)])
@pytest.mark.parametrize("dense", [True, False])
def test_it_is_that_of_the_client_at_its_own_model(toy, memory, before, dense):
    layers = (nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    module = nn.Sequential(*layers) if dense else nn.Sequential(*layers[:2], nn.Dropout(0.3), layers[2])
    layout = FlatLayout.of(module)
    received = layout.flatten(module)
    context = HopContext(received, received, payload={"fisher": torch.ones_like(received)})
    out, left = run_hop(copy.deepcopy(module), toy, (FisherPenalty(memory=memory),), context=context, batch_size=4)
    module.load_state_dict(layout.state_dict(out, module))
    torch.testing.assert_close(left.payload["fisher"], before + fisher_of(module.eval(), *toy.train_samples(1)))


def test_labels_may_be_drawn_by_the_model(toy, linear):
    terms = (FisherPenalty(labels="model"),)
    found = [run_hop(copy.deepcopy(linear), toy, terms)[1].payload["fisher"] for _ in range(2)]
    given = run_hop(copy.deepcopy(linear), toy, (FisherPenalty(),))[1].payload["fisher"]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], given)
    assert (found[0] >= 0).all()


def test_drawn_labels_follow_the_probabilities_and_keep_padding():
    torch.manual_seed(0)
    logits = torch.tensor([[[0.0, 50.0], [50.0, 0.0], [0.0, 50.0]]])
    assert draw_labels(logits, torch.tensor([[0, 0, IGNORED_LABEL]])).tolist() == [[1, 0, IGNORED_LABEL]]
    logits = torch.log(torch.tensor([[0.25, 0.75]]).expand(4000, 2))
    assert draw_labels(logits, torch.zeros(4000)).mean() == pytest.approx(0.75, abs=0.03)


def test_a_fisher_of_ones_is_fedprox(toy, linear):
    received = FlatLayout.of(linear).flatten(linear)
    ones = HopContext(received, received, payload={"fisher": torch.ones_like(received)})
    held, _ = run_hop(copy.deepcopy(linear), toy, (FisherPenalty(strength=0.7),), context=ones, batch_size=2)
    prox, _ = run_hop(copy.deepcopy(linear), toy, (ProximalPenalty(mu=0.7),), batch_size=2)
    torch.testing.assert_close(held, prox, rtol=1e-6, atol=1e-7)


def test_the_first_hop_has_no_penalty_and_the_second_has_one():
    """A client's Fisher is the square of its slope at the model it hands on."""
    problem = Problem([[1, 1], [1, 3]], (FisherPenalty(strength=2.0),), lr=0.1, epochs=2)
    (home,) = problem.travel((0, 1))
    first = 1 - 0.9**2
    fisher = (first - 1) ** 2
    second = first
    for _ in range(2):
        second -= 0.1 * (second - 3 + 2.0 * fisher * (second - first))
    assert home.item() == pytest.approx(second, rel=1e-12)
    assert problem.server["fisher"].item() == pytest.approx((second - 3) ** 2, rel=1e-12)
    (again,) = problem.travel((0,))  # from zero once more, held by what the last client left
    held = 0.1 + 0.1 * (0.9 - 2.0 * (second - 3) ** 2 * 0.1)
    assert again.item() == pytest.approx(held, rel=1e-12)


def test_one_adam_for_all_clients_by_hand():
    """The authors' EWC: the running means of Adam and the Fisher information pass from client to client."""
    train = {"optimizer": "adam", "optimizer_state": "payload", "lr": 0.1, "epochs": 2}
    terms = (FisherPenalty(strength=2.0), *optimizer_state_terms(TrainSettings(**train)))
    problem = Problem([[1, 1], [1, 3]], terms, LastRoute(), **train)
    x, fisher, mean, square, step = 0.0, 0.0, 0.0, 0.0, 0
    for place in (1, 3, 1, 3):  # two rounds of a ring of two
        received = x
        for _ in range(2):
            gradient, step = x - place + 2.0 * fisher * (x - received), step + 1
            mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
            x -= 0.1 * (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)) ** 0.5 + 1e-8)
        fisher = (x - place) ** 2
    for _ in range(2):
        problem.travel((0, 1))
    assert problem.weights.item() == pytest.approx(x, rel=1e-9)


def test_several_come_home_as_their_mean_by_samples():
    def arrival(route, samples, fisher):
        hop = HopReport(samples, 1, 0.0)
        return Arrival(route, (route,), torch.zeros(1), (hop,), {"fisher": torch.tensor([fisher])})

    model, arrivals = torch.zeros(1), [arrival(0, 10, 1.0), arrival(1, 30, 3.0)]
    sent, kept = FisherPenalty().after_merge(fr.MergedRound(model, model, arrivals, 5, {"other": torch.ones(1)}))
    assert {name: tensor.item() for name, tensor in sent.items()} == {"fisher": 2.5}
    assert kept == {}


def test_the_authors_optimiser(small):
    """One Adam for all clients, which travels with the model beside the Fisher information."""
    settings = {**small, "optimizer": "adam", "lr": 0.01}
    carried = fr.run("ewc", **settings, optimizer_state="payload")
    assert carried.complete
    assert carried.weights_sha256 != fr.run("ewc", **settings).weights_sha256
    assert carried.client_updates == 18  # one chain of six clients in each of three rounds
    model = 4 * len(carried.weights)
    beside = 3 * model + 4  # the Fisher information, two running means and the number of steps
    assert carried.bytes == (3 + 15 + 3) * model + (2 + 15 + 3) * beside  # in the first round nothing comes down
