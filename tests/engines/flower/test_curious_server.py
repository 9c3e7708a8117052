"""What a curious server finds in everything that it and the SuperLink hold: open against sealed routes.

The attack reads the label sets of clients from the bias of the last layer, which training raises for the labels that
occur. It succeeds if there is a model from right before and from right after a client's hop. The attack that draws
images is in `benchmarks/curious_server.py`; here it is checked that it has a real server's view.
"""

from __future__ import annotations

import importlib.util
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import fedrelay as fr
from fedrelay.data.open_federation import open_federation
from fedrelay.experiment.spec import DataSettings

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

CLIENTS, CLASSES = 6, 10


@pytest.fixture
def view(make_nodes, use_nodes, tmp_path):
    """Run one chain through all clients: all messages, the bytes of all files at the server, and the nodes."""

    def watch(handover, rounds=2, method="fedcyclic"):
        federation = open_federation(DataSettings(name="digits", clients=CLIENTS, partition="shards"), 3)
        nodes, seen = make_nodes(federation, sealed=handover == "sealed"), []
        use_nodes(nodes)

        def look(request, reply):
            seen.append((request, reply))
            return reply

        nodes.connection.reply_faults = dict.fromkeys(nodes.names, look)
        settings = {"rounds": rounds, "batch_size": 64, "seed": 3, "fraction": 1.0, "checkpoint.seconds": 0.0}
        out = tmp_path / handover
        fr.run(
            method,
            engine="flower",
            data="nodes",
            model="logistic",
            out=out,
            **settings,
            **{"route.handover": handover},
        )
        return seen, out, nodes

    return watch


def labels(nodes):
    """Client × class: whether the client has samples of it."""
    found = np.zeros((CLIENTS, CLASSES), bool)
    for client in range(CLIENTS):
        found[client, nodes.federation.train_samples(client).y.unique().numpy()] = True
    return found


def guessed(seen):
    """The attacker's guesses, from the nearest models before and after each hop that can be read."""
    found, before, waiting = np.zeros((CLIENTS, CLASSES), bool), None, []
    for request, reply in seen:
        if "models" in request.arrays:
            before = request.arrays["models"][0][-CLASSES:]
        waiting.append(request.header["hop"][3])
        if "models" in reply.arrays:
            found[waiting] = reply.arrays["models"][0][-CLASSES:] > before
            waiting = []
    return found


def balanced_accuracy(guess, truth):
    """The mean of the shares of right guesses among labels that occur and among those that do not; chance is 0.5."""
    return ((guess & truth).sum() / truth.sum() + (~guess & ~truth).sum() / (~truth).sum()) / 2


def in_first_round(seen):
    return [pair for pair in seen if pair[0].header.get("hop", [0])[0] == 1]


def test_open_routes_show_every_label_set(view):
    seen, _, nodes = view("server")
    assert np.array_equal(guessed(in_first_round(seen)), labels(nodes))


def test_sealed_routes_show_no_label_set_and_all_but_the_last_client_are_at_chance(view):
    """The end of a route is a model that its last client has just trained, so that one is better than chance."""
    seen, _, nodes = view("sealed")
    guess, truth, hops = guessed(in_first_round(seen)), labels(nodes), in_first_round(seen)
    last = hops[-1][0].header["hop"][3]
    others = [client for client in range(CLIENTS) if client != last]
    assert not (guess == truth).all(axis=1).any()
    assert balanced_accuracy(guess[others], truth[others]) == 0.5
    assert balanced_accuracy(guess[[last]], truth[[last]]) == 0.875


def test_rotations_show_every_client_because_each_is_the_last_of_a_route(view):
    seen, _, nodes = view("sealed", rounds=1, method="spfl")
    start, guess, truth = seen[0][0].arrays["models"][0][-CLASSES:], np.zeros((CLIENTS, CLASSES), bool), labels(nodes)
    ends = [
        (request.header["hop"][3], reply.arrays["models"][0]) for request, reply in seen if "models" in reply.arrays
    ]
    for client, end in ends:
        guess[client] = end[-CLASSES:] > start
    assert sorted(client for client, _ in ends) == list(range(CLIENTS))
    assert not (guess == truth).all(axis=1).any()
    assert balanced_accuracy(guess, truth) == pytest.approx(0.79, abs=0.01)


def test_no_file_or_message_at_the_server_has_a_model_between_clients(view):
    """The nodes still have these models, so the test knows what to look for; differences are looked for, too."""
    seen, out, nodes = view("sealed", rounds=1)
    kept = [load_file(path)["models"][0] for path in sorted(nodes.folder.rglob("out-*.safetensors"))]
    assert len(kept) == CLIENTS - 1
    start, end = seen[0][0].arrays["models"][0], seen[-1][1].arrays["models"][0]
    held = [path.read_bytes() for path in out.rglob("*") if path.is_file()]
    held += [array.tobytes() for pair in seen for message in pair for array in message.arrays.values()]
    held += [repr(dict(message.header)).encode() for pair in seen for message in pair]
    for model in (*kept, *(model - start for model in kept), *(end - model for model in kept)):
        assert not any(model[-CLASSES:].tobytes() in each for each in held)
    for one, other in pairwise(kept):
        assert not any((other - one)[-CLASSES:].tobytes() in each for each in held)
    assert any(end[-CLASSES:].tobytes() in each for each in held)  # the same search finds what is there


@pytest.mark.parametrize("handover", ["server", "sealed"])
def test_no_message_has_a_sample(handover, view):
    seen, _, nodes = view(handover, rounds=1)
    sent = [array.tobytes() for pair in seen for message in pair for array in message.arrays.values()]
    for client in range(CLIENTS):
        rows = nodes.federation.train_samples(client).x.flatten(1).numpy()
        assert not any(row[8:24].tobytes() in each for row in rows for each in sent)  # parts of it would be found, too


@pytest.fixture(scope="module")
def attacks():
    """The command itself."""
    path = Path(__file__).parents[3] / "benchmarks" / "curious_server.py"
    spec = importlib.util.spec_from_file_location("curious_server_command", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("handover", ["server", "sealed"])
def test_the_benchmark_attacks_what_a_real_server_reads(handover, attacks, make_nodes, use_nodes):
    """These models, up to rounding, and no others; and the attacker computes a client's training as the client does."""
    images, rounds, sealed = 5, 2, handover == "sealed"
    seen, truth = attacks.run(images, rounds, sealed=sealed)
    data = DataSettings(name="digits", clients=attacks.CLIENTS, partition="iid", samples=attacks.CLIENTS * images)
    nodes, read = make_nodes(open_federation(data, attacks.SEED), sealed=sealed), []
    use_nodes(nodes)

    def look(request, reply):
        if request.header["kind"] == "hop":
            read.extend(message.arrays["models"] for message in (request, reply) if "models" in message.arrays)
        return reply

    nodes.connection.reply_faults = dict.fromkeys(nodes.names, look)
    settings = {"model": {"name": "mlp", "hidden": (attacks.HIDDEN,)}, "lr": attacks.RATE, "batch_size": images}
    usual = {"rounds": rounds, "seed": attacks.SEED, "fraction": 1.0, "route.handover": handover}
    fr.run("fedcyclic", engine="flower", data="nodes", **usual, **settings)
    assert [len(models) for models in read] == [1] * 2 * len(seen)
    expected = [model for each in seen for model in (each.before, each.after)]
    largest = max(np.abs(one[0] - other.numpy()).max() for one, other in zip(read, expected, strict=True))
    assert largest < 1e-6
    assert len(seen) == (rounds if sealed else rounds * attacks.CLIENTS)
    for each in seen:
        model = each.before.clone().requires_grad_()
        for client in each.clients:
            own = nodes.federation.train_samples(client)
            assert torch.equal(own.x.flatten(1), truth[client])
            model = attacks.trained(model, truth[client], torch.nn.functional.one_hot(own.y, attacks.CLASSES).float())
        assert torch.allclose(model, each.after, atol=1e-6)
