"""A server that breaks the protocol of sealed routes: each attack is played, and the nodes refuse it."""

from __future__ import annotations

import json
import os
import time

import numpy as np
import pytest

import fedrelay as fr
from fedrelay.engines.flower.messages import Message
from fedrelay.experiment.part_serialization import to_plain
from fedrelay.local.terms.drift_penalty import DriftPenalty
from fedrelay.local.terms.fisher_penalty import FisherPenalty
from fedrelay.local.terms.proximal_penalty import ProximalPenalty

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

RUN = "a" * 16
ONE_REQUEST = "it has answered another request for this hop, and a hop has one request only"


class HostileServer:
    """Makes requests of its own from the first request of an honest run, and sends them to the nodes."""

    def __init__(self, nodes, method="fedcyclic", **settings):
        seen = []

        def look(request, reply):
            seen.append(request)
            return reply

        nodes.connection.reply_faults = dict.fromkeys(nodes.names, look)
        usual = {"rounds": 1, "batch_size": 64, "seed": 3, "fraction": 1.0, "route.handover": "sealed"}
        fr.run(method, engine="flower", data="nodes", **{**usual, **settings})
        first = next(each for each in seen if each.header["kind"] == "hop")
        self.nodes, self.services, self.header = nodes, nodes.connection.services, first.header
        self.plan, self.start = first.header["sealed"]["plan"], first.arrays["models"][:1]
        self.job = json.loads(first.header["job"])

    def job_with(self, **sections):
        return json.dumps(
            {name: {**part, **sections.get(name, {})} if name in sections else part for name, part in self.job.items()}
        )

    def job_with_train(self, **settings):
        return {**self.job, "train": {**self.job["train"], **settings}}

    def ask(self, plan, index, arrays, names=(), *, before=None, after=None, hop=(1, 0, 0), tolerance=None, **header):
        """The reply to a hop; `hop` is (round, route, attempt)."""
        receiver = None if after is None else self.services[plan[after]].facts().sealing.model_dump(mode="json")
        sealed = {"plan": plan, "from_hop": before, "to_hop": after, "receiver": receiver, "tolerance": tolerance}
        round, route, attempt = hop
        place = {"hop": [round, route, index, 0, attempt, len(plan)], "names": list(names), "sealed": sealed}
        found = json.loads(json.dumps({**self.header, "run": RUN, **place, **header}))
        return self.services[plan[index]].respond(Message(found, arrays))

    def first(self, plan, **more):
        """The reply to the first hop of a route, which trains the server's model."""
        return self.ask(plan, 0, {"models": self.start}, ["recv"], after=1, **more)


@pytest.fixture
def hostile(digit_nodes):
    def make(method="fedcyclic", **settings):
        return HostileServer(digit_nodes(4, sealed=True), method, **settings)

    return make


def test_a_node_trains_what_the_envelope_has_and_nothing_else(hostile):
    server = hostile()
    a, b, c, _ = server.plan
    sealed = server.first([a, b]).arrays["envelope"]
    both = {"envelope": sealed, "models": server.start}
    for name in ("recv", "round", "payload control-change", "anything"):
        reply = server.ask([a, b], 1, both, [name], before=0)
        assert reply.header["reason"] == f"it has {name!r} in the clear; this hop of a sealed route takes none"
    more = {"models": np.concatenate([server.start, server.start])}
    reply = server.ask([c, a], 0, more, ["recv", "server control"], after=1)
    assert reply.header["reason"] == "it has 'server control' in the clear; this hop of a sealed route takes 'recv'"
    assert "models" in server.ask([a, b], 1, {"envelope": sealed}, before=0).arrays


def test_a_received_model_cannot_be_measured_with_models_of_the_servers_choice(hostile):
    """Answers of the check against the round's model would tell how far it is from each of many models."""
    server = hostile()
    plan, job = server.plan[:2], server.job_with(guard={"norm": 1.0})
    sealed = server.first(plan, job=job, typical_norm=0.5).arrays["envelope"]

    def ask(round_model, **more):
        both, common = {"envelope": sealed, "models": round_model}, {"job": job, "typical_norm": 0.5, "before": 0}
        return server.ask(plan, 1, both, ["round"], **{**common, **more})

    assert "another hop, round or run" in ask(server.start + 0.1).header["reason"]
    assert "another hop, round or run" in ask(server.start, merges=7).header["reason"]
    assert "another hop, round or run" in ask(server.start, tolerance=0.1).header["reason"]
    missing = server.ask(plan, 1, {"envelope": sealed}, before=0, job=job, typical_norm=0.5)
    assert missing.header["reason"] == "it has no model of the round"
    assert "reason" not in ask(server.start).header


def test_a_hop_has_one_request_also_after_a_restart(hostile):
    """Otherwise two answers that differ in the client's state only would show that state."""
    server = hostile("fedcyclic+scaffold")
    plan = server.plan[:3]

    def through(hop, request):
        one = server.first(plan, hop=hop, state=0, request=request)
        two = server.ask(plan, 1, one.arrays, before=0, after=2, hop=hop, state=0, request=request + 1)
        return two.arrays

    server.ask(plan, 2, through((1, 0, 0), 10), before=1, state=0, request=12)  # the node keeps version 12
    sealed, at = through((2, 0, 0), 20), {"before": 1, "hop": (2, 0, 0)}
    honest = server.ask(plan, 2, sealed, state=12, request=22, **at)
    server.nodes.restart()
    again = server.ask(plan, 2, sealed, state=12, request=23, **at)
    assert np.array_equal(again.arrays["models"], honest.arrays["models"])
    assert server.ask(plan, 2, sealed, state=0, request=24, **at).header["reason"] == ONE_REQUEST
    other = server.ask(plan, 0, {"models": server.start + 1}, ["recv"], after=1, hop=(2, 0, 0), state=0, request=25)
    assert other.header["reason"] == ONE_REQUEST


def test_routes_of_a_node_in_one_round_have_the_same_nodes_in_one_order(hostile):
    server = hostile()
    a, b, c, d = server.plan
    assert "envelope" in server.first([a, b, c]).arrays
    assert "it was on a route with other nodes in this attempt" in server.first([a, d], hop=(1, 1, 0)).header["reason"]
    assert server.first([a, c, b]).header["reason"] == "this route had its nodes in another order before"
    assert "envelope" in server.first([a, c, b], hop=(1, 1, 0)).arrays  # a rotation of the same nodes
    reply = server.first([a, b, d], kind="reseal")
    assert reply.header["reason"].startswith("the model of this hop was trained for a route with other nodes")
    assert "envelope" in server.first([a, b, c], kind="reseal").arrays


def test_how_a_model_left_is_forgotten_after_as_many_days_as_a_run(hostile):
    server = hostile()
    a, b, *_ = server.plan
    server.ask([a, b], 1, server.first([a, b]).arrays, before=0)
    [folder] = (server.nodes.folder / b).rglob("departures")
    month_ago = time.time() - 31 * 86_400
    old, used = sorted(folder.iterdir())[:2]
    for path in (old, used):
        os.utime(path, (month_ago, month_ago))
    outbox = server.services[b].sealed.outbox
    outbox.choose_departure(used.name, used.read_text())  # days count from the last time
    server.nodes.restart()
    assert not old.exists()
    assert used.exists()


def test_what_left_in_the_clear_in_one_run_is_not_sealed_in_another(hostile):
    """The difference to the end of the longer route would be the last client's work, exactly."""
    server = hostile()
    a, b, c, _ = server.plan
    short = server.first([a, b])
    assert "models" in server.ask([a, b], 1, short.arrays, before=0).arrays
    long = server.first([a, b, c], run="b" * 16)
    reply = server.ask([a, b, c], 1, long.arrays, before=0, after=2, run="b" * 16)
    assert reply.header["reason"] == "the model of this hop has left this node in the clear, so it never leaves sealed"


def test_the_server_cannot_ask_how_large_the_weights_of_a_client_are(hostile):
    server = hostile()
    job = server.job_with(guard={"largest": 1e-9, "on_divergence": "stop"})
    assert "envelope" in server.first(server.plan[:2], job=job).arrays
    failed = server.ask(
        server.plan[:2], 0, {"models": server.start * np.float32(1e30)}, ["recv"], after=1, hop=(2, 0, 0)
    )
    assert set(failed.header) == {"kind", "request", "seconds", "refused", "audit", "answered_sha256", "signature"}
    assert failed.header["refused"] == "its own model was not finite or too large after training"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"chain_schedule": {"name": "linear", "end": 0.01}}, "differ by 10 times at most"),
        ({"chain_schedule": {"name": "linear", "end": 50.0}}, "differ by 10 times at most"),
        ({"weight_decay": 20.0}, "erases more than half of what a client of a sealed route receives"),
    ],
)
def test_settings_that_erase_the_work_of_other_clients_are_refused(settings, problem, hostile):
    server = hostile()
    assert problem in server.first(server.plan, job=server.job_with(train=settings)).header["reason"]


def test_terms_that_show_one_client_most_are_not_sealed(hostile):
    server = hostile()
    with pytest.raises(fr.SpecError, match=r"'sealed' cannot hide 'optimizer-velocity'.*train\.optimizer_state=reset"):
        HostileServer(server.nodes, momentum=0.9, optimizer_state="payload")
    job = json.dumps({**server.job, "terms": [to_plain(FisherPenalty())]})
    reason = server.first(server.plan, job=job).header["reason"]
    assert reason == "'fisher' is no sum over the clients of a route, so it never travels on a sealed one"
    job = json.dumps({**server.job, "terms": [to_plain(ProximalPenalty(mu=10.0))]})  # the model would hardly move
    assert "pulls to its anchor by up to 0.1 / train.lr" in server.first(server.plan, job=job).header["reason"]


@pytest.mark.parametrize(
    ("term", "problem"),
    [
        (DriftPenalty(anchor="round", alpha=10.0), "pulls to its anchor by up to 0.1 / train.lr"),
        (DriftPenalty(anchor="round", alpha=0.9, alpha_by_size=True), "erases more than half"),
        (
            DriftPenalty(anchor="round", alpha=1.9),
            "erases more than half of what a client of a sealed route has changed",
        ),
        (
            ProximalPenalty(anchor="round", mu=1.9),
            "erases more than half of what a client of a sealed route has changed",
        ),
    ],
)
def test_terms_that_pull_a_model_back_to_that_of_the_round_are_refused(term, problem, hostile):
    """At the end there would be the last client's work alone, and nothing of those before it."""
    server = hostile()
    job = json.dumps({**server.job_with_train(batch_size=4), "terms": [to_plain(term)]})
    assert problem in server.first(server.plan, job=job).header["reason"]
    kept = json.dumps({**server.job_with_train(batch_size=4), "terms": [to_plain(ProximalPenalty(anchor="round"))]})
    with_round = {"models": np.concatenate([server.start, server.start])}
    reply = server.ask(server.plan, 0, with_round, ["recv", "round"], after=1, job=kept)
    assert "envelope" in reply.arrays


def test_a_node_that_refuses_every_model_undoes_one_hop_and_is_skipped(hostile, tmp_path):
    server = hostile()
    _, second, third, _ = server.plan
    service = server.services[third]
    honest = service._sealed_hop

    def refusing(request, sealed):
        fields = {"kind": "hop", "request": request.header["request"], "seconds": 0.0}
        open_ = request.header["sealed"]["from_hop"] is None
        return honest(request, sealed) if open_ else Message({**fields, "refused_received": "nothing but zeros"})

    service._sealed_hop = refusing
    HostileServer(server.nodes, out=tmp_path / "run")
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [(each["node"], each["what"]) for each in events] == [
        (second, f"refused by {third}"),
        (third, "it refuses every model"),
    ]
