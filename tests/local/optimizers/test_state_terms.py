"""What an optimiser remembers between hops: nothing, what the client kept, or what came with the model."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from tests.local.terms.conftest import Problem, first_context, number
from tests.local.test_batched_trainer import network

import fedrelay as fr
from fedrelay.experiment.method import build_method
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import TrainSettings, experiment
from fedrelay.local.batched_trainer import BatchedTrainer, trainer_for
from fedrelay.local.hop_context import HopContext
from fedrelay.local.optimizers.build import build_optimizer
from fedrelay.local.optimizers.state_terms import optimizer_state_terms
from fedrelay.local.trainer import EagerTrainer, TrainingJob
from fedrelay.models.flat_layout import FlatLayout, FlatModule
from fedrelay.rng import generator
from fedrelay.routes.plan import Hop

OPTIMIZERS = [
    {"optimizer": "adam"},
    {"optimizer": "adamw", "weight_decay": 0.1},
    {"optimizer": "rmsprop"},
    {"momentum": 0.9},
    {"optimizer": "torch.optim:NAdam"},
    {"optimizer": "torch.optim:Adagrad"},
]
SOME_LR = {"lr": 0.02, "batch_size": 3}


def job_of(module, federation, state, lanes=1, **train):
    settings = TrainSettings(**SOME_LR, optimizer_state=state, **train)
    layout = FlatLayout.of(module)
    return TrainingJob(module, layout, federation, settings, optimizer_state_terms(settings), seed=7, lanes=lanes)


def one_pass(module, federation, hops, train):
    """All batches of these hops one after another, with one optimiser and nothing of ours but it and their order."""
    module, settings = copy.deepcopy(module), TrainSettings(**SOME_LR, **train)
    theta = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    optimiser = build_optimizer(settings).start_hop(settings, 0.02, theta)
    for hop in hops:
        x, y = federation.train_samples(hop.client)
        order = generator(7, "batches", hop.round, hop.route, hop.index, hop.client).permutation(len(y))
        for batch in torch.from_numpy(order).split(3):
            torch.nn.utils.vector_to_parameters(theta, module.parameters())
            module.zero_grad()
            F.cross_entropy(module(x[batch]), y[batch]).backward()
            gradient = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
            optimiser.step(theta, gradient)
    return theta


@pytest.mark.parametrize("train", OPTIMIZERS, ids=str)
def test_hops_with_the_state_of_the_payload_are_one_long_hop(toy, linear, train):
    job, hops = job_of(linear, toy, "payload", **train), [Hop(1, 0, 0, 1), Hop(1, 0, 1, 3), Hop(1, 0, 2, 1)]
    trainer = EagerTrainer(job, FlatModule(linear, job.layout))
    context = first_context(job, job.layout.flatten(linear))
    for hop in hops:
        out = torch.empty_like(context.received)
        trainer.train_hops([hop], [context], [out])
        context = HopContext(out, payload=context.payload)
    torch.testing.assert_close(context.received, one_pass(linear, toy, hops, train), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("state", ["reset", "client"])
@pytest.mark.parametrize("train", OPTIMIZERS, ids=str)
def test_each_client_goes_on_from_its_own_last_hop(toy, linear, train, state):
    """The second hop of client 1 is that of an optimiser that saw its first hop, or nothing."""
    job = job_of(linear, toy, state, **train)
    trainer = EagerTrainer(job, FlatModule(linear, job.layout))
    start = job.layout.flatten(linear)
    context, out = first_context(job, start), torch.empty_like(start)
    trainer.train_hops([Hop(1, 0, 0, 1)], [context], [out])
    again = first_context(job, out.clone())
    for name, tensor in context.new_client_state.items():
        again.client_state[name].copy_(tensor)
    trainer.train_hops([Hop(2, 0, 0, 1)], [again], [out])
    if state == "client":
        expected = one_pass(linear, toy, [Hop(1, 0, 0, 1), Hop(2, 0, 0, 1)], train)
    else:
        between = copy.deepcopy(linear)
        torch.nn.utils.vector_to_parameters(again.received, between.parameters())
        expected = one_pass(between, toy, [Hop(2, 0, 0, 1)], train)
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("state", ["client", "payload"])
@pytest.mark.parametrize("train", OPTIMIZERS[:4], ids=str)
def test_every_lane_has_its_own_state(toy, train, state):
    """Lanes of different sizes that start with different states, against one model after another."""
    module, found = network(), []
    job = job_of(module, toy, state, lanes=8, **train)
    for trainer in (
        EagerTrainer(job, FlatModule(module, job.layout)),
        trainer_for(job, FlatModule(module, job.layout)),
    ):
        hops = [Hop(1, route, 0, client) for route, client in enumerate((1, 2, 3, 4))]
        contexts = [first_context(job, job.layout.flatten(module)) for _ in hops]
        for lane, context in enumerate(contexts):
            for tensor in (context.client_state | context.payload).values():
                tensor.fill_(lane)  # the lane of route 0 has no state yet
        out = [torch.empty_like(contexts[0].received) for _ in hops]
        trainer.train_hops(hops, contexts, out)
        states = [torch.cat(list((each.new_client_state | each.payload).values())) for each in contexts]
        found.append((torch.stack(out), torch.stack(states)))
    assert isinstance(trainer, BatchedTrainer)
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)


def problem_of(rows, state, sizes=None, **train):
    settings = TrainSettings(optimizer="adam", optimizer_state=state, **train)
    return Problem(rows, optimizer_state_terms(settings), sizes=sizes, **settings.model_dump())


def test_adam_on_two_clients_by_hand():
    """Clients pull x = 0 to 1 and to -3; the first has three times as many samples, so its steps count three times."""
    problem = problem_of([[1, 1], [1, -3]], "payload", sizes=[3, 1], lr=0.1, batch_size=1)
    first, second = problem.travel((0,), (1,))
    assert float(second) == pytest.approx(0.1 * -1)  # one step of Adam has the length of the learning rate
    mean, square, steps = (problem.server[f"optimizer-{name}"] for name in ("mean", "square", "steps"))
    torch.testing.assert_close(steps, number((3 * 3 + 1) / 4))
    x, m, v, last = 0.0, 0.0, 0.0, 0.0
    for step in (1, 2, 3):
        last = x - 1
        m, v = 0.9 * m + 0.1 * last, 0.999 * v + 0.001 * last**2
        x -= 0.1 * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)) ** 0.5 + 1e-8)
    assert float(first) == pytest.approx(x)
    torch.testing.assert_close(mean, number((3 * m / (1 - 0.9**3) + 3) / 4))
    torch.testing.assert_close(square, number((3 * v / (1 - 0.999**3) + 9) / 4))


def test_the_next_round_starts_with_the_mean_of_the_last():
    problem = problem_of([[1, 1], [1, -3]], "payload", lr=0.1)
    problem.travel((0,), (1,))
    assert problem.server["optimizer-mean"].tolist() == [1.0]  # gradients -1 and 3
    [moved] = problem.travel((0,))  # from 0 again, with gradient -1
    of_gradient, of_square = 0.1 / (1 - 0.9**2), 0.001 / (1 - 0.999**2)
    mean, square = 1 + of_gradient * (-1 - 1), 5 + of_square * (1 - 5)
    assert float(moved) == pytest.approx(-0.1 * mean / square**0.5)


def test_a_client_that_two_routes_visit_keeps_the_state_of_the_later_one():
    problem = problem_of([[1, 1], [1, -3]], "client", lr=0.1)
    problem.travel((0,), (0,))
    kept = problem.client_states.get(0)
    assert {name: tensor.tolist() for name, tensor in kept.items()} == {
        "optimizer-mean": [-1.0],
        "optimizer-square": [1.0],
        "optimizer-steps": [1.0],
    }
    assert problem.client_states.get(1) == {}


@pytest.mark.parametrize("state", ["client", "payload"])
def test_results_do_not_depend_on_the_number_of_workers(small, state):
    settings = {**small, "optimizer": "adam", "optimizer_state": state, "lr": 0.01}
    one, two = (fr.run("spfl", **settings | {"workers": workers}) for workers in (1, 2))
    assert one.weights_sha256 == two.weights_sha256
    assert one.weights_sha256 != fr.run("spfl", **settings | {"optimizer_state": "reset"}).weights_sha256


def test_the_payload_is_counted_by_its_bytes(small):
    """Adam sends two tensors of the model's size and one number: up in every round, down from the second."""
    plain, costs = (
        prepare(experiment("fedavg", **small, optimizer="adam", optimizer_state=state))
        for state in ("reset", "payload")
    )
    layout, plans = costs.prepared.layout, [costs.planner.plan(round) for round in (1, 2)]
    clients, state = plans[0].client_updates, 2 * layout.bytes + 4
    found = [costs.costs.transfers(plan).bytes for plan in plans]
    base = [plain.costs.transfers(plan).bytes for plan in plans]
    assert base == [2 * clients * layout.bytes] * 2
    assert found == [base[0] + clients * state, base[1] + 2 * clients * state]


def test_a_warm_up_keeps_it_too_and_the_method_starts_anew(small):
    settings = {**small, "rounds": 3, "warmup.rounds": 2, "optimizer": "adam", "optimizer_state": "payload"}
    prepared, _, costs = prepare(experiment("fedavg-first+fedcyclic", **settings))
    assert [[type(term).__name__ for term in phase.terms] for phase in prepared.phases] == [
        ["PayloadOptimizerStateTerm"]
    ] * 2
    down = [costs.extras(fr.RoundPlan(round, (fr.Route((0,)),)))["s2c"] for round in (1, 2, 3)]
    assert [bool(extra) for extra in down] == [False, True, False]


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        (
            "fedavg",
            {"optimizer_state": "client"},
            "train.optimizer_state: sgd remembers nothing without train.momentum",
        ),
        (
            "fedseq+dp",
            {"optimizer": "adam", "optimizer_state": "payload"},
            "train.optimizer_state: 'dp' cannot protect what 'payload' sends beside the model; use 'reset' or 'client'",
        ),
        (
            "fednova",
            {"momentum": 0.9, "optimizer_state": "client"},
            "train.optimizer_state: FedNova counts the momentum of each hop from its first step; use 'reset'",
        ),
    ],
)
def test_refusals(method, settings, message):
    with pytest.raises(fr.SpecError, match=f"^{message}"):
        build_method(experiment(method, **settings))


def test_private_clients_may_keep_it(small):
    settings = {**small, "rounds": 2, "optimizer": "adam", "optimizer_state": "client", "lr": 0.01}
    assert fr.run("dp", **settings, **{"recovery.repeats": 0}).complete


def test_an_optimiser_without_memory_cannot_keep_it():
    train = TrainSettings(optimizer="torch.optim:SGD", optimizer_state="client")
    with pytest.raises(fr.SpecError, match=r"torch\.optim:SGD remembers nothing between steps; use 'reset'"):
        optimizer_state_terms(train)
