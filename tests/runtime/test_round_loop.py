"""Whole runs: equalities between methods, exact numbers on toy problems, users' own data and models."""

from __future__ import annotations

import json
import os
import re
import signal
import threading

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import fedrelay as fr
from fedrelay.data.dataset import Dataset
from fedrelay.data.federation import ArrayFederation
from fedrelay.data.partition import ClientIndices
from fedrelay.engines.base import RoundInputs
from fedrelay.engines.local.executor import InlineExecutor
from fedrelay.engines.local.simulation_engine import SimulationEngine
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import TrainSettings, experiment
from fedrelay.local.trainer import TrainingJob
from fedrelay.merge.base import MergeInput
from fedrelay.merge.last_route import LastRoute
from fedrelay.merge.mean import Mean
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.models.two_part_classifier import TwoPartClassifier
from fedrelay.routes.execution_overlay import AS_PLANNED
from fedrelay.routes.plan import RoundPlan, Route
from fedrelay.runtime.recorder import plan_summary
from fedrelay.runtime.round_loop import resume_run, run_experiment
from fedrelay.runtime.run_state import RunState
from fedrelay.runtime.server import Server
from fedrelay.tasks.custom import CustomTask


def sha(result: fr.Result) -> str:
    return str(result.summary()["weights_sha256"])


class Quadratic(nn.Module):
    """One parameter x; a sample (a, b) stands for the loss ½·a·(x − b)²."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return 0.5 * samples[:, 0] * (self.x - samples[:, 1]) ** 2


def quadratic_engine(*clients: tuple[float, float], lr: float = 0.1) -> tuple[SimulationEngine, FlatLayout]:
    rows = np.array(clients, dtype=np.float32)
    labels = np.zeros(len(rows), dtype=np.int64)
    dataset = Dataset("quadratic", "tabular", rows, labels, rows, labels, 1)
    federation = ArrayFederation(dataset, ClientIndices(np.arange(len(rows)), np.arange(len(rows) + 1)), seed=0)
    module = Quadratic()
    layout = FlatLayout.of(module)
    train = TrainSettings(lr=lr)
    job = TrainingJob(module, layout, federation, train, (), 1, task=CustomTask(loss=lambda out, y: out.mean()))
    return SimulationEngine(job, InlineExecutor(job)), layout


def after_one_round(engine, layout, merge, *routes):
    start = torch.zeros(1, dtype=torch.float64)
    arrivals = engine.run_round(RoundPlan(1, tuple(Route(route) for route in routes)), AS_PLANNED, RoundInputs(start))
    home = MergeInput(start, arrivals, layout, 2, TrainSettings(), lambda client: np.ones(1, dtype=np.int64))
    return merge.apply(home).weights.item()


class TestExactNumbers:
    @pytest.mark.parametrize(
        ("merge", "routes", "expected"),
        [
            (LastRoute(), [(0, 1)], -0.01),  # A → B
            (LastRoute(), [(1, 0)], +0.01),  # B → A
            (Mean(), [(0,), (1,)], 0.0),  # FedAvg
            (Mean(), [(0, 1), (1, 0)], 0.0),  # both orders, averaged
        ],
    )
    def test_two_opposite_clients(self, merge, routes, expected):
        engine, layout = quadratic_engine((1, 1), (1, -1))
        assert after_one_round(engine, layout, merge, *routes) == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize(
        ("merge", "routes", "expected"),
        [
            (LastRoute(), [(0, 1)], -0.23),
            (LastRoute(), [(1, 0)], -0.17),
            (Mean(), [(0, 1), (1, 0)], -0.20),
            (Mean(), [(0,), (1,)], -0.10),
        ],
    )
    def test_two_unequal_clients(self, merge, routes, expected):
        engine, layout = quadratic_engine((1, 1), (3, -1))
        assert after_one_round(engine, layout, merge, *routes) == pytest.approx(expected, abs=1e-12)

    def test_full_batches_of_equal_clients_make_one_global_gradient_step(self, linear):
        federation = equal_clients(4, samples=6)
        result = fr.run(
            "fedavg", data=federation, model=linear, rounds=1, fraction=1.0, batch_size=100, lr=0.3, workers=1
        )
        x = torch.cat([federation.train_samples(k).x for k in range(4)])
        y = torch.cat([federation.train_samples(k).y for k in range(4)])
        nn.functional.cross_entropy(linear(x), y).backward()
        step = torch.cat([(p - 0.3 * p.grad).detach().flatten() for p in linear.parameters()])
        torch.testing.assert_close(result.weights, step)


def equal_clients(count: int, samples: int) -> fr.Federation:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(count * samples, 4)).astype(np.float32)
    y = rng.integers(0, 3, count * samples)
    return fr.federate(x, y, x[:9], y[:9], client_ids=np.repeat(np.arange(count), samples))


class TestEqualities:
    """Methods that must coincide, bit for bit."""

    def test_fedseq_with_groups_of_one_is_fedavg(self, small, monkeypatch):
        singles = tuple((client,) for client in range(20))
        monkeypatch.setattr("fedrelay.grouping.grouping.Grouping.form_groups", lambda *_: singles)
        assert sha(fr.run("fedseq", **small)) == sha(fr.run("fedavg", **small))

    def test_fedseq_with_one_group_is_fedcyclic_on_that_order(self, small, monkeypatch):
        settings = {**small, "fraction": 1.0}
        chain = fr.plan("fedseq", **settings, **{"grouping.max_clients": 20}).routes[0]
        assert sorted(chain.clients) == list(range(20))
        monkeypatch.setattr(
            "fedrelay.routes.ring.sample",
            lambda context, round, n: (
                fr.plan("fedseq", round, **settings, **{"grouping.max_clients": 20}).routes[0].clients
            ),
        )
        assert sha(fr.run("fedcyclic", **settings)) == sha(fr.run("fedseq", **settings, **{"grouping.max_clients": 20}))

    def test_fedcyclic_with_one_client_is_plain_sgd_and_fedavg(self, toy, linear):
        alone = fr.federate(*toy.train_samples(1), *toy.test, client_ids=np.zeros(9))
        settings = {"data": alone, "model": linear, "rounds": 3, "batch_size": 2}
        assert sha(fr.run("fedcyclic", **settings)) == sha(fr.run("fedavg", **settings))

    def test_fedprox_without_pull_is_its_route_alone(self, small):
        for route in ("fedavg", "fedseq", "fedcyclic"):
            assert sha(fr.run(f"{route}+fedprox", **small, terms={"prox": {"mu": 0}})) == sha(fr.run(route, **small))

    def test_identical_clients_give_the_mean_of_any(self, linear):
        x, y = np.ones((6, 4), np.float32), np.zeros(6, np.int64) + 2
        federation = fr.federate(x, y, x, y, client_ids=[0, 0, 1, 1, 2, 2])
        settings = {"data": federation, "model": linear, "rounds": 2, "batch_size": 2, "fraction": 1.0}
        one = fr.federate(x[:2], y[:2], x, y, client_ids=[0, 0])
        torch.testing.assert_close(
            fr.run("fedavg", **settings).weights, fr.run("fedavg", **{**settings, "data": one}).weights
        )

    def test_small_steps_make_the_order_of_a_ring_irrelevant_to_first_order(self):
        engine, layout = quadratic_engine((1, 1), (2, -1), (0.5, 3), lr=1e-6)
        there, back = (after_one_round(engine, layout, LastRoute(), order) for order in ((0, 1, 2), (2, 1, 0)))
        assert there == pytest.approx(1e-6 * (1 - 2 + 1.5), rel=1e-4)
        assert back == pytest.approx(there, rel=1e-4)


def test_merges_see_the_step_size_of_their_round():
    """FedNova with a proximal term asks for it."""
    prepared, planner, _ = prepare(
        experiment("fednova+fedprox", lr=0.4, schedule={"name": "step", "factor": 0.5}, rounds=3)
    )
    state = RunState(2, prepared.layout.flatten(prepared.module))
    assert Server(prepared, planner).merge_input(prepared.phase(3), state, []).train.lr == 0.1


@pytest.mark.parametrize("method", ["fedavg", "fedcyclic", "fedseq", "fedseq+fedprox", "centralized"])
def test_results_do_not_depend_on_the_number_of_workers(small, method):
    one, two, four = (fr.run(method, **small | {"workers": workers}) for workers in (1, 2, 4))
    assert sha(one) == sha(two) == sha(four)
    assert one.history == two.history == four.history


def test_seeds_matter(small):
    assert sha(fr.run("fedseq", **small, seed=1)) != sha(fr.run("fedseq", **small, seed=2))


def test_the_ledger_of_a_run_is_the_closed_form(small):
    avg, ring = fr.run("fedavg", **small), fr.run("fedcyclic", **small)
    assert avg.transfers == {"s2c": 18, "c2s": 18, "c2c": 0}
    assert ring.transfers == {"s2c": 3, "c2s": 3, "c2c": 15}
    size = 4 * avg.weights.numel()
    assert (avg.bytes, ring.bytes) == (36 * size, 21 * size)
    assert avg.client_updates == ring.client_updates == 18
    assert avg.history[-1]["bytes"] == avg.bytes


def test_history_is_a_table(small):
    result = fr.run("fedavg", **{**small, "rounds": 5}, every=2)
    table = pd.DataFrame(result.history)
    assert table["round"].tolist() == [2, 4, 5]
    assert {"accuracy", "loss", "precision", "recall", "f1", "train_loss", "bytes", "client_updates"} <= set(table)
    assert result.accuracy == table["accuracy"].iloc[-1]
    assert result.accuracy_last == pytest.approx(table["accuracy"].mean())


def test_clients_without_samples_are_passed_over(linear):
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(6, 4)).astype(np.float32), np.array([0, 1, 2, 0, 1, 2])
    dataset = Dataset("gaps", "tabular", rows, labels, rows, labels, 3)
    federation = ArrayFederation(dataset, ClientIndices(np.arange(6), np.array([0, 3, 3, 6, 6])), seed=0)
    for method, hops in (("fedavg", 2), ("fedcyclic", 2), ("fedseq", 2)):
        result = fr.run(method, data=federation, model=linear, rounds=2, fraction=1.0)
        assert result.client_updates == 2 * hops
    nobody = ArrayFederation(dataset, ClientIndices(np.array([], dtype=np.int64), np.array([0, 0, 0])), seed=0)
    still = fr.run("fedavg", data=nobody, model=linear, rounds=2)
    assert torch.equal(still.weights, FlatLayout.of(linear).flatten(linear))
    assert still.transfers == {"s2c": 0, "c2s": 0, "c2c": 0}


class OwnNet(nn.Module):
    """A user's module: BatchNorm, a buffer, defined where no worker could import it from."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.body(x))


def test_own_modules_and_arrays_are_accepted():
    digits = fr.load_data("digits", clients=10)
    x = torch.cat([digits.train_samples(k).x for k in range(10)])
    y = torch.cat([digits.train_samples(k).y for k in range(10)])
    federation = fr.federate(x, y, *digits.test, clients=12, alpha=0.2, seed=4)
    net = OwnNet()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    result = fr.run("fedseq", model=net, data=federation, rounds=4, fraction=1.0, lr=0.1)
    assert result.history[-1]["accuracy"] > 0.5
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    trained = result.load_into(OwnNet()).eval()
    guess = trained(digits.test.x).argmax(1)
    assert (guess == digits.test.y).double().mean().item() == pytest.approx(result.accuracy)
    assert trained.body[2].num_batches_tracked > 0


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Linear(4, 3), r"does not accept samples of shape \(1, 8, 8\): RuntimeError"),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(64, 7)),
            r"shape \(2, 10\) for 2 samples \(task \'classification\'\), but returned \(2, 7\)",
        ),
        (nn.Flatten(), "but returned"),
    ],
)
def test_modules_that_do_not_fit_are_refused(module, message):
    with pytest.raises(fr.SpecError, match=message):
        fr.run("fedavg", model=module, data="digits", rounds=1)


def test_a_diverged_run_says_so(small):
    with pytest.raises(fr.DivergedError, match="fedavg: round 1: the model left client"):
        fr.run("fedavg", **small | {"workers": 2}, lr=1e38)


def test_impossible_options_show_before_anything_is_done(small, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(fr.SpecError, match=r"route\.start"):
        fr.run("fedcyclic", **small, out=out, **{"route.start": 99, "route.order": "fixed"})
    assert not out.exists()


def test_the_first_interrupt_finishes_the_round(small):
    class PressCtrlC:
        def on_run_start(self, experiment, round):
            pass

        def on_interrupt(self):
            pass

        def on_round_end(self, context):
            if context.round == 2:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(fr.Interrupted) as stopped:
        fr.run("fedavg", **small | {"rounds": 50, "workers": 2}, callbacks=PressCtrlC())
    assert stopped.value.result.rounds == 2
    assert len(stopped.value.result.history) == 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_runs_work_outside_the_main_thread(small):
    found = []
    thread = threading.Thread(target=lambda: found.append(sha(fr.run("fedavg", **small | {"workers": 2}))))
    thread.start()
    thread.join()
    assert found == [sha(fr.run("fedavg", **small))]


def test_a_run_can_be_planned_without_training(small):
    run = prepare(experiment("fedseq", **small, **{"grouping.max_clients": 4}))
    cost = run.costs.total(run.planner.plan(round) for round in (1, 2, 3))
    assert cost["transfers"] == {"s2c": 3, "c2s": 3, "c2c": 9}
    assert (cost["client_updates"], cost["longest_route"], cost["rounds"]) == (12, 4, 3)
    summary = plan_summary(run)
    assert summary["first_round"]["transfers"] == {"s2c": 1, "c2s": 1, "c2c": 3}
    assert sorted(client for group in summary["groups"] for client in group) == list(range(20))


def test_runs_in_several_threads_do_not_disturb_each_other(toy):
    module = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 3))
    settings = {"data": toy, "model": module, "rounds": 5, "fraction": 1.0, "batch_size": 2, "workers": 1}
    expected = sha(fr.run("fedavg", **settings))
    found = []
    threads = [threading.Thread(target=lambda: found.append(sha(fr.run("fedavg", **settings)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 3


class Wandering(nn.Module):
    """Replaces a buffer instead of changing it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return self.linear(x - self.mean)


def test_modules_that_replace_their_buffers_give_the_same_bits_too(toy):
    settings = {"data": toy, "model": Wandering(), "rounds": 3, "fraction": 1.0, "batch_size": 2}
    assert len({sha(fr.run("fedavg", **settings, workers=workers)) for workers in (1, 2, 3)}) == 1


def test_the_users_module_is_left_exactly_as_it_was(toy):
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4).eval(), nn.Linear(4, 3))
    fr.run("fedavg", data=toy, model=module, rounds=1)
    assert not module[1].training
    assert module[1].num_batches_tracked == 0


def test_lazy_modules_take_their_shape_from_the_data(toy):
    assert fr.run("fedavg", data=toy, model=nn.LazyLinear(3), rounds=1).weights.numel() == 4 * 3 + 3


def test_trained_weights_do_not_load_into_another_architecture(toy, linear):
    result = fr.run("fedavg", data=toy, model=linear, rounds=1)
    with pytest.raises(RuntimeError, match="Missing key"):
        result.load_into(nn.Sequential(nn.Linear(4, 3)))


def test_settings_without_effect_are_refused(toy):
    with pytest.raises(fr.SpecError, match="clients, alpha: has no effect on data of your own"):
        fr.run("fedavg", data=toy, alpha=0, clients=3)
    with pytest.raises(fr.SpecError, match=r"data\.partition: has no effect with synthetic data"):
        fr.run("fedavg", data="synthetic", partition="shards")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: fr.run("fedavg", data=5),
            "data: must be a name, a mapping of settings, a federation or a function of the seed, got int",
        ),
        (lambda: fr.run("fedavg", model=nn.Linear(1, 1), hidden=[3]), "hidden: has no effect on a model of your own"),
        (lambda: fr.plan("fedavg", 0), "round: must be a whole number from 1, got 0"),
        (lambda: fr.compare("fedavg"), "methods: must be a"),
        (lambda: fr.run("fedcyclic", **{"route.start": 1}), "route.start: has no effect with order 'random'"),
        (lambda: fr.run("fedavg", device="meta"), "train.device: 'meta' cannot be used here"),
        (lambda: fr.run("fedavg", hidden=[10**12]), "model: cannot be built"),
    ],
)
def test_odd_calls_get_one_clear_message(call, message):
    with pytest.raises(fr.SpecError) as refused:
        call()
    assert message in str(refused.value)


@pytest.mark.parametrize("device", ["hpu", "gpu", "cuda:77"])
def test_an_impossible_device_is_one_short_line(device):
    with pytest.raises(fr.SpecError) as refused:
        fr.run("fedavg", device=device)
    shown = rf"train\.device: '{device}' cannot be used here \(.{{1,70}}\); devices here: [\w, ]*cpu"
    assert re.fullmatch(shown, str(refused.value))


@pytest.mark.parametrize(
    "method", ["fedavg", "fedseq", "scaffold", "moon", "fedseq+glam", "ewc", "fedmmd", "spfl+feddc", "fedfusion"]
)
def test_only_what_changes_travels(method, toy, tmp_path):
    torch.manual_seed(1)
    net = TwoPartClassifier(
        nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 5), nn.ReLU()), nn.Linear(5, 3)
    )
    net.features[0].requires_grad_(False)
    settings = {"data": toy, "model": net, "rounds": 2, "fraction": 1.0, "lr": 0.1, "batch_size": 2}
    result = fr.run(method, **settings, workers=1, out=tmp_path / "run")
    assert fr.run(method, **settings, workers=2).weights_sha256 == result.weights_sha256
    frozen = {name: each for name, each in net.state_dict().items() if name.startswith("features.0.")}
    assert all(torch.equal(result.model[name], each) for name, each in frozen.items())
    setup, *rounds = (json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines())
    assert setup["payloads"] == {"frozen parameters": 6 * 4 * 30 * (2 if method == "fedfusion" else 1)}
    models = sum(line[kind] for line in rounds for kind in ("s2c", "c2s", "c2c"))
    sizes = {"moon": len(result.weights), "fedfusion": len(result.weights)}  # they add layers of their own
    own = 12 + 35 + 18 + 13  # trained, and the statistics with their counter
    assert sizes.get(method, own) == len(result.weights)
    assert sum(line["bytes"] for line in rounds) == 4 * len(result.weights) * models
    saved = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(saved[name], each) for name, each in result.model.items())
    if method not in sizes:
        assert saved.keys() == net.state_dict().keys()
        result.load_into(net)


def test_a_run_that_pauses_is_incomplete_and_goes_on_as_if_it_had_not(small, tmp_path):
    spec, ended = experiment("fedseq", **small, out=tmp_path / "run"), []

    class Ends(fr.Callback):
        def on_run_end(self, result):
            ended.append(result.rounds)

    paused = run_experiment(spec, callbacks=Ends(), pause=lambda row: row["round"] >= 2)
    assert (paused.rounds, paused.complete, ended) == (2, False, [])
    assert resume_run(spec.out, callbacks=Ends(), pause=lambda row: row["round"] >= 1).rounds == 2
    whole = resume_run(spec.out, callbacks=Ends())
    assert (whole.complete, ended) == (True, [3])
    assert sha(whole) == sha(fr.run("fedseq", **small))
