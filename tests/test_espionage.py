"""A spy in a real run: the run stays as it was, and what is seen is measured."""

from __future__ import annotations

import pytest
import torch

import fedrelay as fr
from fedrelay import espionage
from fedrelay.attacks.gan import taps
from fedrelay.errors import SpecError
from fedrelay.espionage import run_with_spy
from fedrelay.setting import prepare
from fedrelay.spec import experiment

SETTINGS = {"clients": 10, "alpha": 100, "rounds": 3, "fraction": 1.0, "batch_size": 32, "workers": 1}


@pytest.mark.parametrize("method", ["fedavg", "fedseq"])
def test_the_run_is_the_one_without_a_spy(method, monkeypatch):
    monkeypatch.setattr(espionage, "MOST_COMPARED", 300)
    wanted = experiment(method, **SETTINGS)
    haul = run_with_spy(wanted, 4, epochs=1)
    assert torch.equal(haul.weights, fr.run(method, **SETTINGS).weights)
    setting = prepare(wanted)
    expected = [
        (round, setting.plan(round).routes[number].clients[index - 1] if index else None)
        for round in (1, 2, 3)
        for number, index in taps(4, [route.clients for route in setting.plan(round).routes])
    ]
    assert [(glimpse.round, glimpse.predecessor) for glimpse in haul.glimpses] == expected
    assert expected
    assert all(glimpse.fid_all > 0 for glimpse in haul.glimpses)
    assert haul.drawings.shape == (64, 1, 8, 8)
    assert haul.first_at(0.0) == haul.glimpses[0]
    assert haul.first_at(1.1) is None


@pytest.mark.parametrize(
    ("method", "spy", "more", "message"),
    [
        ("fedavg", 10, {}, "spy: must be a client with samples, one of 0 … 9, got 10"),
        ("centralized", 0, {}, "needs a method of clients"),
        ("fedavg", 0, {"faults": [{"what": "dropout"}]}, "nothing that goes wrong"),
    ],
)
def test_what_cannot_be_spied_on(method, spy, more, message):
    with pytest.raises(SpecError, match=message):
        run_with_spy(experiment(method, **SETTINGS, **more), spy)
