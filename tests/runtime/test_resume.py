"""Methods that keep something between rounds: a run that died anywhere ends with the same bits."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from tests.damage import THOROUGH
from tests.runtime.eight_clients import GROUPS, federation, network

import fedrelay as fr
from fedrelay.experiment.spec import experiment
from fedrelay.runtime.callback import Callback
from fedrelay.runtime.round_loop import resume_run, run_experiment

METHODS = {
    "scaffold": {},
    "spfl+feddc": {},
    "fedseq+feddyn": GROUPS,
    "moon+fedadam": {},
    "fedseqinter+scaffold": {**GROUPS, "route.period": 4},
    "fedasyncseq": {**GROUPS, "route.period": 4, "clock.profile": "log-normal"},
    "fedseq2par+fedavgm": {"route.beta": 2},
    "fedgsp": {"route.beta": 2},
    "ghbm+fedprox": {"terms.heavy-ball.tau": 3},
    "fedseq": {**GROUPS, "sampling": "passes", "route.regroup": "pass"},
    "fedseq+lookahead+wima+fedadam": {**GROUPS, "server": {"momentum": 0.5, "ramp": True}},
    "fedseqinter+fedacg": {**GROUPS, "route.period": 2, "server": {"average": {"ema": 0.5}}},
    "fedstar": {"route.weights": "accuracy", "route.temperature": 0.1},
    "ewc": {},
    "fedcyclic": {"optimizer": "adam", "optimizer_state": "payload", "schedule": "cosine"},
    "fedavg": {"momentum": 0.9, "optimizer_state": "client", "chain_schedule": {"name": "linear", "end": 0.5}},
    "fedseqinter+fedprox": {
        **GROUPS,
        "route.period": 4,
        "optimizer": "torch.optim:NAdam",
        "optimizer_state": "payload",
    },
    "wfsl+spfl": {"warmup.cycles": 3, "optimizer": "rmsprop", "optimizer_state": "client"},
    "wfsl+scaffold": {"warmup.cycles": 3},
    "wfsl": {"warmup.cycles": 3, "warmup.select.by": "genetic", "warmup.select.count": 4},
    "fedavg-first+spfl": {"warmup.rounds": 3},
    "shared-raw+feddyn": {"warmup.pretrain": 2},
    "fedseqinter+feddyn": {
        **GROUPS,
        "route.period": 4,
        "faults": [{"what": "dropout", "rate": 0.2}, {"what": "nan", "rate": 0.2}, {"what": "explode", "rate": 0.1}],
        "guard": {"on_divergence": "skip", "norm": 2.0, "tolerance": 0.02},
        "recovery.policy": "later",
    },
}

ROUNDS = 6


class Dead(BaseException):
    """What kills a run."""


class Death(Callback):
    """Kills a run after a round, without giving it a chance to save anything."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_round_end(self, context):
        if context.round == self.after:
            raise Dead


@pytest.fixture(scope="module")
def data():
    return federation()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "checkpoint_seconds",
    [
        pytest.param(0, id="a checkpoint every round"),
        pytest.param(1000, id="no checkpoint at all", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_died_ends_with_the_same_bits(tmp_path, data, method, checkpoint_seconds):
    settings = {"rounds": ROUNDS, "fraction": 0.6, "batch_size": 2, "workers": 1, "seed": 5, **METHODS[method]}
    settings["checkpoint"] = {"seconds": checkpoint_seconds}
    whole = run_experiment(experiment(method, **settings), federation=data, module=network())
    for after in (1, 3, 5) if THOROUGH else (3,):
        folder = tmp_path / str(after)
        with pytest.raises(Dead):
            run_experiment(
                experiment(method, **settings, out=folder), federation=data, module=network(), callbacks=Death(after)
            )
        if after == 3:  # and once more
            with pytest.raises(Dead):
                resume_run(folder, federation=data, module=network(), callbacks=Death(4))
        resumed = resume_run(folder, federation=data, module=network())
        assert resumed.weights_sha256 == whole.weights_sha256
        assert resumed.history == whole.history
        assert resumed.fault_events == whole.fault_events
        assert (resumed.transfers, resumed.bytes) == (whole.transfers, whole.bytes)


@pytest.mark.parametrize("method", ["fedseq", "moon", "ewc"])
def test_a_run_with_frozen_parameters_resumes_with_the_same_ones_only(tmp_path, data, partly_frozen, method):
    settings = {"rounds": 4, "fraction": 0.6, "batch_size": 2, "workers": 1, "checkpoint": {"seconds": 0}}
    whole = run_experiment(experiment(method, **settings), federation=data, module=partly_frozen)
    with pytest.raises(Dead):
        run_experiment(
            experiment(method, **settings, out=tmp_path / "run"),
            federation=data,
            module=partly_frozen,
            callbacks=Death(2),
        )
    other = copy.deepcopy(partly_frozen)
    other[0][0].bias.data[1] += 1
    with pytest.raises(fr.RunFolderError, match="frozen parameters are not those the run was started with"):
        resume_run(tmp_path / "run", federation=data, module=other)
    other[0][0].bias.data[1] = partly_frozen[0][0].bias[1]
    other[2].bias.data += 1  # what is trained comes from the checkpoint
    resumed = resume_run(tmp_path / "run", federation=data, module=other)
    assert resumed.weights_sha256 == whole.weights_sha256
    assert all(torch.equal(resumed.model[name], each) for name, each in whole.model.items())
    assert (resumed.transfers, resumed.bytes) == (whole.transfers, whole.bytes)


def test_random_groups_of_very_many_clients_are_not_stored_and_resume_with_the_same_bits(tmp_path, data, monkeypatch):
    monkeypatch.setattr("fedrelay.runtime.recorder.MOST_CLIENTS_WITH_STORED_GROUPS", 7)  # of eight
    settings = {"rounds": 4, "fraction": 0.6, "batch_size": 2, "workers": 1, **GROUPS}
    whole = run_experiment(experiment("fedseq", **settings), federation=data, module=network())
    dying = experiment("fedseq", **settings, out=tmp_path / "run")
    with pytest.raises(Dead):
        run_experiment(dying, federation=data, module=network(), callbacks=Death(2))
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert (plan["groups"], plan["group_count"]) == (None, 4)
    assert resume_run(tmp_path / "run", federation=data, module=network()).weights_sha256 == whole.weights_sha256
