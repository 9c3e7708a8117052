from __future__ import annotations

import torch

import fedrelay as fr


def test_the_method_starts_with_the_model_of_fedavg_s_last_round(toy):
    settings = {"data": toy, "model": {"name": "mlp", "hidden": (3,)}, "fraction": 1.0, "workers": 1}
    alone = fr.run("fedavg", rounds=2, **settings)
    before = fr.run("fedavg-first+fedcyclic", rounds=2, warmup={"rounds": 2}, **settings)
    assert torch.equal(before.weights, alone.weights)
    both = fr.run("fedavg-first+fedcyclic", rounds=3, warmup={"rounds": 2}, **settings)
    assert [row["client_updates"] for row in both.history] == [6, 12, 18]
    assert both.longest_route == 6
    assert [row["accuracy"] for row in both.history[:2]] == [row["accuracy"] for row in alone.history]
