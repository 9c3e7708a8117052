"""Problems small enough to know the answer: clients with one quadratic loss each, on the real engine."""

from __future__ import annotations

import copy

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from fedrelay.data.dataset import Dataset
from fedrelay.data.federation import ArrayFederation
from fedrelay.data.partition import ClientIndices
from fedrelay.engines.base import RoundInputs
from fedrelay.engines.local.executor import InlineExecutor
from fedrelay.engines.local.simulation_engine import SimulationEngine
from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.client_state import ClientStateStore
from fedrelay.local.hop_context import HopContext
from fedrelay.local.state_until_merge import state_after_merges
from fedrelay.local.terms.base import MergedRound
from fedrelay.local.terms.tensor_declarations import ClientState, Payload, ServerState
from fedrelay.local.trainer import EagerTrainer, TrainingJob
from fedrelay.merge.base import MergeInput
from fedrelay.models.flat_layout import FlatLayout, FlatModule
from fedrelay.rng import generator
from fedrelay.routes.execution_overlay import AS_PLANNED
from fedrelay.routes.plan import Hop, RoundPlan, Route
from fedrelay.tasks.custom import CustomTask


class Quadratic(nn.Module):
    """½a‖x − b‖², where each sample is a row (a, b)."""

    def __init__(self, size=1):
        super().__init__()
        self.x = nn.Parameter(torch.zeros(size, dtype=torch.float64))

    def forward(self, rows):
        return 0.5 * rows[:, 0] * ((self.x - rows[:, 1:]) ** 2).sum(-1)


def mean_of_outputs(outputs, targets):
    return outputs.mean()


class Problem:
    """One client for each row (a, b), which it has once or as often as `sizes` say, and the rounds they go through."""

    def __init__(self, rows, terms=(), merge=None, executor=InlineExecutor, sizes=None, **train):
        self.rows = np.asarray(rows, dtype=np.float32)
        self.sizes = np.ones(len(self.rows), dtype=np.int64) if sizes is None else np.asarray(sizes)
        samples, labels = np.repeat(self.rows, self.sizes, axis=0), np.zeros(self.sizes.sum(), dtype=np.int64)
        dataset = Dataset("quadratic", "tabular", samples, labels, samples, labels, 1)
        offsets = np.concatenate([[0], np.cumsum(self.sizes)])
        federation = ArrayFederation(dataset, ClientIndices(np.arange(len(samples)), offsets), seed=0)
        module = Quadratic(self.rows.shape[1] - 1)
        self.layout, self.terms, self.merge = FlatLayout.of(module), terms, merge
        self.job = TrainingJob(
            module, self.layout, federation, TrainSettings(**train), terms, 1, task=CustomTask(loss=mean_of_outputs)
        )
        self.client_states = ClientStateStore()
        self.engine = SimulationEngine(self.job, executor(self.job), self.client_states)
        self.weights, self.server, self.memory, self.round = self.layout.flatten(module), {}, {}, 0

    @property
    def optimum(self):
        """Where the sum of all samples' losses is least."""
        scales, places = self.sizes[:, None] * self.rows[:, :1].astype(np.float64), self.rows[:, 1:]
        return torch.from_numpy((scales * places).sum(0) / scales.sum())

    def travel(self, *routes):
        """One round; returns the models of the arrivals."""
        self.round += 1
        plan = RoundPlan(self.round, tuple(Route(route) for route in routes))
        arrivals = self.engine.run_round(
            plan, AS_PLANNED, RoundInputs(self.weights, {}, self.server, merges=self.round - 1)
        )
        self.engine.commit_client_state()
        home = [arrival.weights.clone() for arrival in arrivals]
        for term in self.terms:
            merged = MergedRound(self.weights, self.weights, arrivals, len(self.rows), self.server)
            self.server = {**self.server, **term.after_merge(merged).server_state}
        if self.merge is not None:
            self.weights, self.memory = self.merge.apply(
                MergeInput(self.weights, arrivals, self.layout, len(self.rows), self.job.train, None, self.memory)
            )
        return home

    def mean_state(self, name):
        """The mean over all clients after the last merge, absent ones with zero."""
        nothing = torch.zeros_like(self.weights)
        return sum(self.state(client).get(name, nothing) for client in range(len(self.rows))) / len(self.rows)

    def state(self, client):
        """What a client's next hop finds."""
        return state_after_merges(self.client_states.get(client), self.job.states_until_merge, self.round)


def four_rows():
    """Four clients that want different things."""
    rng = np.random.default_rng(0)
    return np.concatenate([rng.uniform(0.5, 2, (4, 1)), rng.normal(size=(4, 3))], axis=1)


ROUTES = {
    "singletons": [(client,) for client in range(4)],
    "chains": [(0, 1), (2, 3)],
    "ring": [(0, 1, 2, 3)],
    "rotations": [tuple((start + run_hop) % 4 for run_hop in range(4)) for start in range(4)],
}


def some_rotations(round):
    """Rotations among three of four clients, others every round."""
    present = [(round + client) % 4 for client in range(3)]
    return [tuple(present[start:] + present[:start]) for start in range(3)]


HOP = Hop(1, 0, 0, 1)


def first_context(job, received, round_model=None):
    """The context of a first hop: all that terms keep or send is zero."""
    zeros = (
        {name: received.new_zeros(size) for name, size in job.tensor_sizes(kind).items()}
        for kind in (ServerState, ClientState, ClientState, Payload)
    )
    return HopContext(received, round_model, *zeros)


def run_hop(
    module, federation, terms=(), *, hop=HOP, received=None, round_model=None, context=None, task=None, **train
):
    """One hop of a client; returns its model and its context afterwards."""
    layout = FlatLayout.of(module)
    options = {} if task is None else {"task": task}
    job = TrainingJob(module, layout, federation, TrainSettings(**train), terms, 7, **options)
    received = layout.flatten(module) if received is None else received
    given = context or first_context(job, received, received if round_model is None else round_model)
    out = torch.empty_like(received)
    EagerTrainer(job, FlatModule(module, layout)).train_hops([hop], [given], [out])
    return out, given


def number(*values):
    return torch.tensor(values, dtype=torch.float64)


def travel_to(goal, problem, kind, rounds):
    """So many rounds, or fewer where the goal is reached before."""
    for _ in range(rounds):
        problem.travel(*ROUTES[kind])
        if (problem.weights - goal).norm() < 1e-6:
            break


def plain_pytorch(module, federation, client, extra, *, lr, batch_size, epochs):
    """A hop in plain PyTorch, with only the order of the samples from FedRelay; `extra` is added to the gradient."""
    module = copy.deepcopy(module)
    x, y = federation.train_samples(client)
    rng, steps = generator(7, "batches", 1, 0, 0, client), 0
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(y)))
        for batch in order.split(batch_size):
            module.zero_grad()
            F.cross_entropy(module(x[batch]), y[batch]).backward()
            with torch.no_grad():
                theta = torch.nn.utils.parameters_to_vector(module.parameters())
                slope = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
                torch.nn.utils.vector_to_parameters(theta - lr * (slope + extra(theta)), module.parameters())
            steps += 1
    return FlatLayout.of(module).flatten(module), steps
