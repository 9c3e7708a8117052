"""The relay against nodes in the same process: equal to the local engine, and unmoved by what goes wrong."""

from __future__ import annotations

import copy
import json
import logging
from collections import Counter
from dataclasses import replace
from functools import partial
from importlib import import_module

import numpy as np
import pytest
import torch
from tests.data.test_torch_dataset_federation import Joined, in_parts
from tests.engines.flower.conftest import share_test_samples
from torch.utils.data import TensorDataset

import fedrelay as fr
from fedrelay.cost.ledger import COUNTER_BYTES
from fedrelay.data.node_torch_datasets import owner_datasets
from fedrelay.data.open_federation import open_federation
from fedrelay.engines.flower.messages import FROZEN
from fedrelay.engines.flower.node.service import NodeService
from fedrelay.experiment.spec import DataSettings
from fedrelay.grouping.profiles import probe_network, task2vec
from fedrelay.models.zoo import build_model
from fedrelay.routes.rotations import Rotations
from fedrelay.runtime.run_folder_reader import RunFolderReader

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

TRAIN = {"rounds": 2, "batch_size": 32, "seed": 3, "lr": 0.05}


def digits(clients=6):
    return open_federation(DataSettings(name="digits", clients=clients, alpha=0.3), 3)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedavg", {"fraction": 0.5}),
        ("fedseq", {"fraction": 1.0, "grouping.max_clients": 3, "grouping.min_samples": 5000}),
        ("fedavg+scaffold", {"fraction": 0.5}),
        ("fedseq+scaffold", {"fraction": 1.0, "grouping.max_clients": 3, "grouping.min_samples": 5000}),
        ("spfl+scaffold", {"fraction": 1.0}),
        ("spfl+feddc", {"fraction": 0.5}),
        ("fedseqinter+moon", {"fraction": 1.0, "grouping.max_clients": 3, "grouping.min_samples": 5000}),
        ("fedstar", {"fraction": 1.0}),
        ("wfsl+fedavg", {"rounds": 4, "warmup.cycles": 2}),
        ("fedavg+fedfusion", {"model": "cnn-s", "rounds": 1}),
        ("ewc", {"fraction": 1.0, "rounds": 2}),
        ("fedcyclic", {"optimizer": "adam", "optimizer_state": "payload", "lr": 0.01, "clip": 1.0}),
        ("spfl", {"fraction": 0.5, "optimizer": "adamw", "optimizer_state": "client", "lr": 0.01}),
        (
            "relay+wima",
            {"rounds": 4, "grouping": {"assign": "random", "max_clients": 2, "min_samples": 5000}},
        ),
        ("ghbm+fedsam", {"fraction": 1.0, "rounds": 3, "terms.heavy-ball.tau": 2}),
        ("daisy-chain", {"fraction": 0.7, "rounds": 3, "route.period": 2}),
        ("fedcyclic+scaffold", {"schedule": "cosine", "chain_schedule": {"name": "linear", "end": 0.2}}),
        ("fedcyclic", {"steps": "inverse-size", "batches": "class-weighted", "route.order": "size"}),
        ("fedtm", {"fraction": 1.0, "steps": "equal", "warmup.rounds": 1}),
    ],
)
def test_the_same_weights_as_the_local_engine(method, settings, make_nodes, use_nodes):
    federation = digits()
    both = {**TRAIN, **settings}
    here = fr.run(method, data=federation, workers=1, lanes=1, **both)
    use_nodes(make_nodes(federation))
    there = fr.run(method, engine="flower", data="nodes", **both)
    torch.testing.assert_close(there.weights, here.weights, rtol=0, atol=1e-6)
    assert there.accuracy == pytest.approx(here.accuracy, abs=1e-9)
    assert there.transfers["c2c"] == 0  # every model goes through the server, and is counted so
    assert (there.client_updates, there.longest_route) == (here.client_updates, here.longest_route)
    assert there.longest_route == 3 or not method.startswith("fedseq")
    assert there.hop_overhead is not None
    assert here.hop_overhead is None


@pytest.mark.parametrize("method", ["fedseq+glam", "fedseqinter+glam", "spfl+glam"])
def test_the_round_model_is_sent_as_often_as_the_ledger_says(method, make_nodes, use_nodes, tmp_path):
    groups = {} if method.startswith("spfl") else {"grouping": {"max_clients": 3, "min_samples": 5000}}
    federation, settings = digits(), {**TRAIN, "fraction": 1.0, **groups}
    here = fr.run(method, data=federation, workers=1, lanes=1, **settings)
    found, sent = make_nodes(federation), []

    def note_models(request, reply):
        sent.extend(request.header.get("names", ()))
        return reply

    for node in found.connection.services:
        found.connection.reply_faults[node] = note_models
    use_nodes(found)
    there = fr.run(method, engine="flower", data="nodes", out=tmp_path / "run", **settings)
    torch.testing.assert_close(there.weights, here.weights, rtol=0, atol=1e-6)
    lines = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    carried = sum(line["payloads"].get("round model", 0) for line in lines)
    assert carried == sent.count("round") * 4 * len(here.weights) > 0


def test_hops_at_a_client_keep_the_order_of_the_plan(make_nodes, use_nodes, monkeypatch):
    """Rotations, but one model after another, as the local engine has them too."""
    federation, settings = digits(), {**TRAIN, "fraction": 0.5}
    unordered = fr.run("spfl+feddyn", data=federation, workers=1, lanes=1, **settings)
    planned = Rotations.plan

    def ordered(self, context, round):
        plan = planned(self, context, round)
        routes = (replace(route, order=(number,) * len(route.clients)) for number, route in enumerate(plan.routes))
        return replace(plan, routes=tuple(routes))

    monkeypatch.setattr(Rotations, "plan", ordered)
    here = fr.run("spfl+feddyn", data=federation, workers=1, lanes=1, **settings)
    use_nodes(make_nodes(federation))
    there = fr.run("spfl+feddyn", engine="flower", data="nodes", **settings)
    torch.testing.assert_close(there.weights, here.weights, rtol=0, atol=1e-6)
    assert not torch.allclose(here.weights, unordered.weights, rtol=0, atol=1e-6)


@pytest.mark.parametrize("profile", ["clf", "weights", "conf", "t2v"])
def test_profiles_are_made_at_the_nodes(profile, make_nodes, use_nodes, monkeypatch):
    monkeypatch.setattr(task2vec, "BATCHES", 4)
    monkeypatch.setattr(task2vec, "EPOCHS", 1)
    monkeypatch.setattr(probe_network, "SAMPLES_SEEN", 500)
    public = {"public": 5} if profile == "conf" else {}
    grouping = {"assign": "greedy", "profile": profile, "max_clients": 3, "min_samples": 5000}
    settings = {**TRAIN, "rounds": 1, "fraction": 1.0, "grouping": grouping}
    here = fr.run(
        "fedseq", data={"name": "digits", "clients": 6, "alpha": 0.3, **public}, workers=1, lanes=1, **settings
    )
    use_nodes(make_nodes(digits()))
    there = fr.run("fedseq", engine="flower", data={"name": "nodes", **public}, **settings)
    torch.testing.assert_close(there.weights, here.weights, rtol=0, atol=1e-6)


def test_histograms_leave_a_node_only_if_it_says_so(make_nodes, use_nodes):
    settings = {**TRAIN, "rounds": 1, "fraction": 1.0, "grouping": {"assign": "greedy", "profile": "hist"}}
    use_nodes(make_nodes(digits()))
    with pytest.raises(fr.EngineError, match="node 'n00' does not share how many samples of each class"):
        fr.run("fedseq", engine="flower", data="nodes", **settings)
    use_nodes(make_nodes(digits(), share_histogram=True))
    assert fr.run("fedseq", engine="flower", data="nodes", **settings).complete


def test_relay_forms_groups_by_noisy_histograms(make_nodes, use_nodes, tmp_path):
    settings = {**TRAIN, "rounds": 2, "fraction": 0.5, "grouping.max_clients": 2, "engine": "flower", "data": "nodes"}
    use_nodes(make_nodes(digits(), share_histogram=True, histogram_epsilon=1.0))
    first, again = (fr.run("relay", **settings, out=tmp_path / name) for name in ("first", "again"))
    assert first.summary()["weights_sha256"] == again.summary()["weights_sha256"]  # the same noise
    stored = RunFolderReader.open(tmp_path / "first").experiment.train
    assert (stored.schedule.name, stored.clip) == ("cosine", 1.0)


def stop_sharing(nodes, count):
    """The first owners no longer share how many samples of each class they have."""
    silent = [facts.model_copy(update={"histogram": None}) for facts in nodes.remote.facts[:count]]
    nodes.remote = replace(nodes.remote, facts=(*silent, *nodes.remote.facts[count:]))


@pytest.mark.parametrize("silent", [3, 6])
def test_relay_asks_for_no_more_than_owners_share(silent, make_nodes, use_nodes, tmp_path, caplog):
    settings = {**TRAIN, "fraction": 0.5, "engine": "flower", "data": "nodes"}
    found = make_nodes(digits(), share_histogram=True)
    stop_sharing(found, silent)
    use_nodes(found)
    with caplog.at_level(logging.WARNING):
        assert fr.run("relay", **settings, grouping={"max_clients": 2}, out=tmp_path / "run").complete
    effect = "treat them as the mean of the others" if silent < 6 else "are random"
    share = "do not share how many samples of each class they have (--share-histogram), so the groups of relay"
    assert f"{silent} of 6 nodes {share} {effect}" in caplog.text
    folder = RunFolderReader.open(tmp_path / "run")
    events = [event["client"] for event in folder.lines("events") if event["what"] == "class counts not shared"]
    assert events == list(range(silent))
    setup = folder.setup_line or {"payloads": {}}
    assert setup["payloads"] == ({"histogram": (6 - silent) * COUNTER_BYTES * 10} if silent < 6 else {})
    with pytest.raises(fr.EngineError, match="node 'n00' does not share how many samples of each class"):
        fr.run("relay", **settings, grouping={"assign": "icg", "max_clients": 2})


def test_a_run_keeps_the_groups_by_what_was_shared_at_its_start(make_nodes, use_nodes, tmp_path):
    settings = {**TRAIN, "fraction": 0.5, "engine": "flower", "data": "nodes", "grouping": {"max_clients": 2}}
    settings |= {"schedule": "constant", "rounds": 1}
    use_nodes(found := make_nodes(digits(), share_histogram=True))
    whole = fr.run("relay", **settings | {"rounds": 6})
    fr.run("relay", **settings, out=tmp_path / "run")
    stop_sharing(found, 6)
    assert fr.resume(tmp_path / "run", rounds=6).summary()["weights_sha256"] == whole.summary()["weights_sha256"]


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("centralized", {}, "method 'centralized': needs the samples of several clients in one place"),
        ("shared-raw+fedavg", {"rounds": 30}, "needs the samples of several clients in one place"),
        ("fedavg", {"eval.forgetting": 1}, "eval.forgetting: evaluates models on other clients' samples"),
        ("fedstar", {"route.weights": "accuracy"}, "route.weights: 'accuracy' needs all clients' samples"),
        ("wfsl+fedstar", {"rounds": 60, "route.weights": "accuracy"}, "route.weights: 'accuracy' needs all clients'"),
        ("fedavg", {"workers": 2}, "engine.workers: has no effect with the flower engine; only with local and ray"),
        ("fedavg", {"lanes": 2}, "engine.lanes: has no effect with the flower engine; only with local and ray"),
        ("fedavg", {"recovery.policy": "backup"}, "recovery.policy: 'backup' is for simulated faults"),
    ],
)
def test_unsupported_experiments_are_refused_at_the_start(method, settings, message, make_nodes, use_nodes):
    found = make_nodes(digits())
    use_nodes(found)
    with pytest.raises(fr.FedRelayError, match=message):
        fr.run(method, engine="flower", data="nodes", **{**TRAIN, **settings})
    assert not found.connection.log


def test_public_samples_come_from_the_servers_own_test_set(make_nodes, use_nodes):
    use_nodes(make_nodes(digits(), test=False))
    with pytest.raises(fr.DataError, match="'nodes' has no test samples to make public"):
        fr.run("fedavg", engine="flower", data="nodes", **TRAIN, **{"guard.tolerance": 0.1})


def test_a_subset_is_of_test_samples_at_the_server(make_nodes, use_nodes):
    federation = digits()
    here = fr.run("fedavg", data=federation, workers=1, lanes=1, subset=50, **TRAIN)
    use_nodes(make_nodes(federation))
    there = fr.run("fedavg", engine="flower", data="nodes", subset=50, **TRAIN)
    assert [row["test_samples"] for row in there.history] == [50] * len(here.history)
    assert [row["accuracy"] for row in there.history] == [row["accuracy"] for row in here.history]
    assert there.accuracy == here.accuracy


def test_nodes_evaluate_all_of_their_samples(make_nodes, use_nodes):
    federation = digits()
    found = make_nodes(federation, test=False)
    share_test_samples(found)
    use_nodes(found)
    with pytest.raises(
        fr.SpecError, match=r"eval\.subset: nodes evaluate models on all of their samples; give the server"
    ):
        fr.run("fedavg", engine="flower", data="nodes", subset=50, **TRAIN)


def when_evaluating(fault):
    return lambda request, reply: fault(request, reply) if request.header["kind"] == "evaluate" else reply


def test_a_node_that_fails_to_evaluate_is_asked_again(make_nodes, use_nodes, tmp_path):
    federation, seen = digits(), []
    here = fr.run("fedavg", data=federation, workers=1, lanes=1, **TRAIN)
    found = make_nodes(federation, test=False)
    share_test_samples(found)
    use_nodes(found)

    def every_other_time(request, reply):
        seen.append(reply)
        return reply if len(seen) % 2 == 0 else "busy"

    found.connection.reply_faults["n01"] = when_evaluating(every_other_time)
    there = fr.run("fedavg", engine="flower", data="nodes", out=tmp_path / "run", **TRAIN)
    assert len(seen) == 4
    assert there.accuracy == pytest.approx(here.accuracy, abs=1e-9)
    assert not (tmp_path / "run" / "events.jsonl").exists()


@pytest.mark.parametrize(
    ("header", "sums", "reason"),
    [
        ({"weight": 200}, None, "it evaluates 200 predictions instead"),
        ({}, [10**6, *[0] * 29], "its counts contradict each other"),
        ({"loss": -1.0}, None, "its loss is negative"),
    ],
)
def test_an_impossible_evaluation_is_left_out_and_reported(header, sums, reason, make_nodes, use_nodes, tmp_path):
    found = make_nodes(digits(), test=False)
    share_test_samples(found)
    use_nodes(found)
    found.connection.reply_faults["n02"] = when_evaluating(
        lambda _, reply: replace(
            reply,
            header={**reply.header, **header},
            arrays=reply.arrays if sums is None else {"sums": np.array(sums, np.float64)},
        )
    )
    fr.run("fedavg", engine="flower", data="nodes", out=tmp_path / "run", **TRAIN)
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [(each["round"], each["client"], each["what"]) for each in events] == [
        (1, 2, "no evaluation"),
        (2, 2, "no evaluation"),
    ]
    tests = found.remote.facts[2].tests
    assert events[0]["done"].startswith(f"evaluated without its {tests} test samples: bad reply: {reason}")


def test_a_node_whose_outputs_are_not_finite_is_named(make_nodes, use_nodes, tmp_path):
    found = make_nodes(digits(3), test=False)
    share_test_samples(found)
    use_nodes(found)
    found.connection.reply_faults["n02"] = when_evaluating(
        lambda _, reply: replace(reply, header={**reply.header, "loss": None, "non_finite": 1})
    )
    result = fr.run("fedavg", engine="flower", data="nodes", out=tmp_path / "run", **TRAIN)
    assert [row["accuracy"] for row in result.history] == [None, None]
    lines = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    assert [(event.get("node"), event["done"]) for event in map(json.loads, lines)] == [
        ("n02", "all metrics on its test samples (the model's outputs are NaN or infinite)"),
        (None, "all metrics on the test samples (the model's outputs are NaN or infinite)"),
    ]


def test_nodes_evaluate_if_the_server_has_no_test_samples(make_nodes, use_nodes):
    federation = digits()
    here = fr.run("fedavg", data=federation, workers=1, lanes=1, fraction=0.5, **TRAIN)
    found = make_nodes(federation, test=False)
    use_nodes(found)
    with pytest.raises(fr.EngineError, match=r"there are no test samples: .*--holdout \(and with --share-evaluation"):
        fr.run("fedavg", engine="flower", data="nodes", fraction=0.5, **TRAIN)
    share_test_samples(found)
    there = fr.run("fedavg", engine="flower", data="nodes", fraction=0.5, **TRAIN)
    assert there.accuracy == pytest.approx(here.accuracy, abs=1e-9)
    assert there.history[-1]["loss"] == pytest.approx(here.history[-1]["loss"], rel=1e-5)


def test_a_run_goes_on_without_a_node_that_leaves(make_nodes, use_nodes, tmp_path):
    found = make_nodes(digits(), test=False)
    use_nodes(found)
    share_test_samples(found)
    settings = {"engine": "flower", "data": "nodes", "fraction": 1.0, **TRAIN}
    with pytest.raises(fr.SpecError, match="withdrawn: a node leaves a run with 'fedrelay resume RUN --without NODE'"):
        fr.run("fedavg", withdrawn={"n01": 1}, **settings)
    fr.run("fedavg", out=tmp_path / "run", **settings)
    asked = len(found.connection.log)
    assert ("n01", "evaluate") in found.connection.log
    result = fr.resume(tmp_path / "run", rounds=3, without=["n01"])
    assert result.rounds == 3
    assert {node for node, _ in found.connection.log[asked:]} == {f"n0{node}" for node in (0, 2, 3, 4, 5)}
    [event] = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert (event["round"], event["what"], event["node"]) == (3, "withdrawn", "n01")


def test_a_model_of_ones_own(make_nodes, use_nodes):
    federation, net = digits(), torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    here = fr.run("fedavg", data=federation, model=net, workers=1, lanes=1, **TRAIN)
    found = make_nodes(federation)
    use_nodes(found)
    with pytest.raises(fr.EngineError, match="start this node with --model"):
        fr.run("fedavg", engine="flower", data="nodes", model=net, **{**TRAIN, "rounds": 9})
    for service in found.connection.services.values():
        service.module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    there = fr.run("fedavg", engine="flower", data="nodes", model=net, **TRAIN)
    torch.testing.assert_close(there.weights, here.weights, rtol=0, atol=1e-6)


def test_noise_that_protects_samples_is_the_nodes_own(make_nodes, use_nodes):
    federation = digits()
    settings = {**TRAIN, "fraction": 0.5, "terms.dp.clip": 1.0, "terms.dp.noise": 0.5, "recovery.repeats": 0}
    here = fr.run("fedavg+dp", data=federation, workers=1, lanes=1, **settings)
    found = make_nodes(federation)
    use_nodes(found)
    there = fr.run("fedavg+dp", engine="flower", data="nodes", **settings)
    assert not torch.allclose(there.weights, here.weights, atol=1e-3)  # nobody who knows the seed can take it away
    again = fr.run("fedavg+dp", engine="flower", data="nodes", **settings)
    assert not torch.allclose(again.weights, there.weights, atol=1e-3)  # another run, other noise


def test_attacks_are_simulated(make_nodes, use_nodes):
    use_nodes(make_nodes(digits()))
    with pytest.raises(fr.SpecError, match=r"attack\.name: attacks are simulated"):
        fr.run("fedavg", engine="flower", data="nodes", **TRAIN, attack={"name": "label-flip", "swap": [0, 1]})


class FrozenMail:
    """Counts the frozen parameters that every node receives."""

    def __init__(self, found):
        self.received = Counter()
        for node in found.connection.services:
            found.connection.reply_faults[node] = partial(self.note, node)

    def note(self, node, request, reply):
        self.received[node] += FROZEN in request.arrays
        assert request.bytes == 4 * 35 or FROZEN not in request.arrays
        return reply


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedavg", {}),
        ("fedavg-first+fedseq+scaffold", {"warmup.rounds": 1, "grouping.max_clients": 3}),
        ("fedseq", {"grouping": {"assign": "greedy", "profile": "clf", "max_clients": 3}}),
    ],
    ids=["fedavg", "phases", "profiles"],
)
def test_nodes_receive_frozen_parameters_once(method, settings, toy, partly_frozen, make_nodes, use_nodes, tmp_path):
    both = {**TRAIN, "rounds": 3, "batch_size": 2, "fraction": 1.0, "model": partly_frozen, **settings}
    here = fr.run(method, data=toy, workers=1, out=tmp_path / "here", **both)
    others = copy.deepcopy(partly_frozen)
    others[0][0].weight.data.zero_()  # the nodes' own values do not matter
    found = make_nodes(toy, module=others)
    mail = FrozenMail(found)
    use_nodes(found)
    there = fr.run(method, engine="flower", data="nodes", out=tmp_path / "there", **both)
    torch.testing.assert_close(there.weights, here.weights, rtol=0, atol=1e-6)
    assert there.model.keys() == partly_frozen.state_dict().keys()
    assert mail.received == dict.fromkeys(found.names, 1)
    lines = [(tmp_path / place / "ledger.jsonl").read_text().splitlines()[0] for place in ("here", "there")]
    assert json.loads(lines[0]) == json.loads(lines[1])
    assert json.loads(lines[1])["payloads"]["frozen parameters"] == 6 * 4 * 35
    assert not others[0][0].weight.any()
    fr.run(method, engine="flower", data="nodes", **both)  # they still have them
    assert mail.received == dict.fromkeys(found.names, 1)


def test_a_node_that_lost_its_frozen_parameters_gets_them_again(toy, partly_frozen, make_nodes, use_nodes):
    both = {**TRAIN, "rounds": 3, "batch_size": 2, "fraction": 1.0, "model": partly_frozen}
    here = fr.run("fedseq", data=toy, workers=1, **both)
    found = make_nodes(toy, module=copy.deepcopy(partly_frozen))
    mail = FrozenMail(found)
    use_nodes(found)

    class LostFiles:
        def on_round_end(self, context):
            if context.round == 1:
                found.restart()  # nothing is lost with the processes
            if context.round == 2:
                for name in ("n01", "n04"):
                    [path] = (found.folder / name / "frozen").iterdir()
                    path.write_bytes(b"damaged") if name == "n01" else path.unlink()
                found.restart()

    there = fr.run("fedseq", engine="flower", data="nodes", callbacks=LostFiles(), **both)
    torch.testing.assert_close(there.weights, here.weights, rtol=0, atol=1e-6)
    assert mail.received == {name: 2 if name in ("n01", "n04") else 1 for name in found.names}
    assert not there.fault_events


def test_a_node_that_takes_no_frozen_parameters_is_skipped(toy, partly_frozen, make_nodes, use_nodes, tmp_path):
    found = make_nodes(toy, module=partly_frozen)
    found.connection.services["n02"].frozen_files.largest = 100
    use_nodes(found)
    both = {**TRAIN, "batch_size": 2, "fraction": 1.0, "model": partly_frozen}
    result = fr.run("fedavg", engine="flower", data="nodes", out=tmp_path / "run", **both)
    reason = "passed over: failed: the frozen parameters of the model have 140 bytes, this node accepts at most 100"
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert {(each["client"], each["done"]) for each in events} == {(2, reason)}
    assert result.client_updates == 2 * 5


def test_nodes_keep_validation_samples_and_choose_together(make_nodes, use_nodes, tmp_path):
    """Each node holds out its own share; the server adds up what they report, and stops by it."""
    federation = digits()
    found = make_nodes(federation, validation=0.25)
    use_nodes(found)
    facts = found.remote.facts
    for client, each in enumerate(facts):
        assert each.validations == pytest.approx(0.25 * federation.sample_count(client), abs=1)
        assert each.samples + each.validations == federation.sample_count(client)
    settings = {**TRAIN, "rounds": 30}
    result = fr.run("fedavg", engine="flower", data="nodes", patience=2, out=tmp_path / "run", **settings)
    assert result.stopped == "stop.patience: no gain in validation_accuracy in 2 evaluations"
    assert result.rounds == result.best.round + 2
    kept = [service.federation.validation for service in found.connection.services.values()]
    module = result.load_into(build_model(result.experiment.model.name, (1, 8, 8), 10, kind="image"))
    right = sum(int((module(part.x).argmax(1) == part.y).sum()) for part in kept)
    total = sum(each.validations for each in facts)
    assert result.history[-1]["validation_accuracy"] == pytest.approx(right / total)


def test_a_node_without_validation_samples_is_not_asked_for_them(make_nodes, use_nodes, tmp_path):
    found = make_nodes(digits())
    [first, *_] = found.names
    found.connection.services[first] = NodeService(found.data[0], found.folder / first, validation=0.3)
    services = found.connection.services.values()
    found.remote = replace(found.remote, facts=tuple(service.facts() for service in services))
    use_nodes(found)
    fr.run("fedavg", engine="flower", data="nodes", **TRAIN)
    asked = [node for node, kind in found.connection.log if kind == "evaluate"]
    assert set(asked) == {first}
    found.connection.reply_faults[first] = when_evaluating(
        lambda _, reply: replace(reply, header={**reply.header, "weight": 1})
    )
    with pytest.raises(fr.EngineError, match="no node evaluated the model"):
        fr.run("fedavg", engine="flower", data="nodes", **TRAIN)


def test_owners_decide_about_validation_samples():
    with pytest.raises(fr.SpecError, match=r"data\.validation: .* owners decide .*: fedrelay node --validation$"):
        fr.run("fedavg", engine="flower", data="nodes", validation=0.2, **TRAIN)


def test_nodes_read_datasets_as_they_are_trained(make_nodes, use_nodes):
    federation, settings = digits(clients=3), {**TRAIN, "rounds": 1, "fraction": 1.0}
    here = fr.run("fedseq", data=federation, workers=1, lanes=1, **settings)
    found = make_nodes(federation)
    for client in range(3):
        found.data[client] = owner_datasets(TensorDataset(*federation.train_samples(client)), None, classes=10)
    found.restart()
    assert not any(service.federation.in_memory for service in found.connection.services.values())
    use_nodes(found)
    there = fr.run("fedseq", engine="flower", data="nodes", **settings)
    torch.testing.assert_close(there.weights, here.weights, rtol=0, atol=1e-6)


@pytest.mark.parametrize("form", ["dict", "tuple"])
@pytest.mark.parametrize("test", [True, False], ids=["test at the server", "held out at nodes"])
def test_samples_with_several_inputs(form, test, make_nodes, use_nodes):
    """Their shapes are sent at registration, public ones with a request for a profile."""
    federation = in_parts(form)
    settings = {**TRAIN, "rounds": 1, "fraction": 1.0, "model": Joined()}
    settings |= {"grouping": {"assign": "greedy", "profile": "conf", "max_clients": 2}} if test else {}
    public = {"public": 1} if test else {}
    here = fr.run("fedseq", data=federation, workers=1, **settings, **public)
    found = make_nodes(federation, test=test, module=Joined(), share_histogram=True)
    if not test:  # all of them at one node
        found.data[0] = owner_datasets(federation.train_samples(0).dataset, federation.test.dataset, classes=3)
        found.restart()
        found.remote = replace(found.remote, facts=tuple(each.facts() for each in found.connection.services.values()))
    assert found.remote.sample_shape == federation.sample_shape
    use_nodes(found)
    there = fr.run("fedseq", engine="flower", data={"name": "nodes", **public}, **settings)
    torch.testing.assert_close(there.weights, here.weights, rtol=0, atol=1e-6)
    assert there.score == pytest.approx(here.score)
    assert {kind for _, kind in found.connection.log} == {"hop"} | ({"profile"} if test else {"evaluate"})


OWN_TASKS = """
import torch
import fedrelay as fr
from fedrelay.tasks.classification import Classification

def hinge(outputs, targets):
    return torch.nn.functional.multi_margin_loss(outputs, targets)

def hit(outputs, targets):
    return (outputs.argmax(1) == targets).float()

margins = fr.CustomTask(loss=hinge, metrics_of={"hit": hit}, higher_is_better=("hit",))

class Scaled(Classification):
    scale: float = 1.0
    def batch_loss(self, outputs, targets):
        return super().batch_loss(self.scale * outputs, targets)
"""


@pytest.fixture
def own_tasks(tmp_path, monkeypatch):
    (tmp_path / "own_tasks_of_nodes.py").write_text(OWN_TASKS)
    monkeypatch.syspath_prepend(tmp_path)
    return "own_tasks_of_nodes"


@pytest.mark.parametrize(
    "task", ["margins", {"name": "Scaled", "scale": 2.0, "class_weights": "balanced"}], ids=["a value", "a class"]
)
def test_nodes_build_a_task_of_the_users_own(task, make_nodes, use_nodes, own_tasks):
    task = f"{own_tasks}:{task}" if isinstance(task, str) else {**task, "name": f"{own_tasks}:{task['name']}"}
    federation, settings = digits(clients=3), {**TRAIN, "rounds": 1, "fraction": 1.0, "task": task}
    here = fr.run("fedavg", data=federation, workers=1, lanes=1, **settings)
    found = make_nodes(federation, plugins=(own_tasks,), share_histogram=True)
    share_test_samples(found)
    use_nodes(found)
    there = fr.run("fedavg", engine="flower", data="nodes", **settings)
    torch.testing.assert_close(there.weights, here.weights, rtol=0, atol=1e-6)
    assert there.metric == here.metric != "loss"
    assert there.score == pytest.approx(here.score)


def test_nodes_refuse_a_task_whose_module_the_owner_does_not_allow(make_nodes, use_nodes, own_tasks):
    use_nodes(make_nodes(digits(clients=3), plugins=("mylab",)))
    with pytest.raises(fr.EngineError, match=rf"{own_tasks}:margins is not allowed here.*\(it allows mylab\)"):
        fr.run("fedavg", engine="flower", data="nodes", task=f"{own_tasks}:margins", **TRAIN)

    class Local(import_module(own_tasks).Scaled):
        pass

    in_a_script = type("InAScript", (Local,), {"__module__": "__main__"})
    for kind in (Local, in_a_script):
        with pytest.raises(fr.SpecError, match=rf"^task: nodes cannot find \S*{kind.__name__}, which is only in your"):
            fr.run("fedavg", engine="flower", data="nodes", task=kind(), **TRAIN)
    unnamed = import_module(own_tasks).margins
    with pytest.raises(fr.SpecError, match="task: nodes cannot find a task that is only in your program"):
        fr.run("fedavg", engine="flower", data="nodes", task=unnamed, **TRAIN)


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        ({"name": "heart-disease"}, {"precision": "bf16", "task": {"name": "binary", "class_weights": "balanced"}}),
        ({"name": "shapes", "clients": 2, "test_samples": 8}, {"model": "unet"}),
    ],
    ids=["binary in bf16", "segmentation"],
)
def test_other_tasks_than_classification(data, settings, make_nodes, use_nodes):
    federation = open_federation(DataSettings(**data), 3)
    both = {**TRAIN, "rounds": 1, "fraction": 1.0, **settings}
    here = fr.run("fedseq", data=federation, workers=1, **both)
    found = make_nodes(federation, share_histogram=True)
    use_nodes(found)
    there = fr.run("fedseq", engine="flower", data="nodes", **both)
    torch.testing.assert_close(there.weights, here.weights, rtol=0, atol=1e-6)
    assert (there.metric, there.score) == (here.metric, pytest.approx(here.score))
