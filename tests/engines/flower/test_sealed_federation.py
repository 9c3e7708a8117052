"""Sealed routes: the same weights as open ones, through a server that reads nothing but the end of each route."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import fedrelay as fr
from fedrelay.data.federation_wrapper import FederationWrapper
from fedrelay.engines.flower.messages import Message

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

USUAL = {"rounds": 2, "batch_size": 64, "seed": 3, "fraction": 1.0, "recovery.timeout": 0.05}
GROUPS = {"grouping.max_clients": 3, "grouping.min_samples": 5000, "grouping.assign": "random"}
SEALED = {"route.handover": "sealed"}


@pytest.fixture
def make_six(digit_nodes):
    return partial(digit_nodes, 6)


@pytest.fixture
def six(make_six):
    """Six nodes that have pinned a roster."""
    return make_six(sealed=True)


def run(method="fedseq", **settings):
    groups = GROUPS if method.startswith("fedseq") else {}
    return fr.run(method, engine="flower", data="nodes", **{**USUAL, **groups, **SEALED, **settings})


def open_run(make_six, method="fedseq", **settings):
    make_six()
    return run(method, **{"route.handover": "server", **settings})


def lines(folder, name):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedseq", {}),
        ("fedseq+scaffold", {"route.loops": 2}),  # a client meets its own state again on the same route
        ("fedseqinter", GROUPS),
        ("fedcyclic", {"guard.norm": 1.5}),
        ("spfl", {"rounds": 1}),
        ("fedseq+fedprox", {"terms.prox.anchor": "round"}),
        ("relay", GROUPS),
    ],
)
def test_sealed_routes_end_with_the_same_bits(method, settings, six, make_six):
    sealed = run(method, **settings)
    assert torch.equal(open_run(make_six, method, **settings).weights, sealed.weights)


def watched(nodes):
    """All messages that pass through the server and the SuperLink, as (request, reply)."""
    seen = []

    def look(request, reply):
        seen.append((request, reply))
        return reply

    nodes.connection.reply_faults = dict.fromkeys(nodes.names, look)
    return seen


def hops_of(seen, round=1):
    return [(request, reply) for request, reply in seen if request.header.get("hop", [0])[0] == round]


def test_the_server_passes_on_what_it_cannot_read(six):
    seen = watched(six)
    run("fedcyclic", rounds=1)
    *middle, (last_request, last_reply) = hops_of(seen)
    assert "models" in middle[0][0].arrays  # the first client gets the server's model
    assert all(set(request.arrays) == {"envelope"} for request, _ in [*middle[1:], (last_request, last_reply)])
    for request, reply in middle:
        assert set(reply.arrays) == {"envelope"}
        assert set(reply.header) == {
            *("kind", "request", "samples", "steps", "seconds", "loss"),
            *("audit", "answered_sha256", "signature"),
        }
        assert reply.header["loss"] is None
        assert len(reply.arrays["envelope"]) == last_reply.arrays["models"].nbytes + 1024
        assert request.header["sealed"]["receiver"] is not None
    assert set(last_reply.arrays) == {"models"}


def test_losses_are_means_over_routes_and_the_ledger_counts_envelopes(six, make_six, tmp_path):
    settings = {"rounds": 1, "eval.every": 1, "guard.norm": 10.0}
    sealed = run(out=tmp_path / "sealed", **settings)
    open_ = open_run(make_six, out=tmp_path / "open", **settings)
    assert sealed.history[-1]["loss"] == pytest.approx(open_.history[-1]["loss"])
    [one], [other] = (lines(tmp_path / name, "ledger.jsonl") for name in ("sealed", "open"))
    assert one["payloads"].pop("envelope") == 2 * 4 * 1024  # up and down, for two handovers on each of two routes
    assert one["bytes"] - other["bytes"] == 2 * 4 * 1024
    assert one["payloads"] == other["payloads"]
    assert (one["s2c"], one["c2s"], one["c2c"]) == (other["s2c"], other["c2s"], other["c2c"])


def nodes_of_route(seen):
    """The nodes of route 0, in order."""
    return next(request for request, _ in hops_of(seen) if request.header["hop"][1] == 0).header["sealed"]["plan"]


@pytest.mark.parametrize("place", [0, 1])
def test_a_node_that_is_down_is_passed_over_as_on_open_routes(place, six, make_six, tmp_path):
    seen = watched(six)
    run(rounds=1)
    name = nodes_of_route(seen)[place]
    six.connection.offline = {name}
    sealed = run("fedseq+fedprox", out=tmp_path / "run")
    assert {(each["node"], each["what"]) for each in lines(tmp_path / "run", "events.jsonl")} == {(name, "offline")}
    nodes = make_six()
    nodes.connection.offline = {name}
    assert torch.equal(run("fedseq+fedprox", **{"route.handover": "server"}).weights, sealed.weights)


def test_the_sender_seals_again_for_the_node_behind_one_that_does_not_answer(six, make_six, tmp_path):
    """Also if the sender was restarted in between: it keeps the model on disk, for its owner alone."""
    seen = watched(six)
    run(rounds=1)
    first, second, _ = nodes_of_route(seen)

    def silent(request, reply):
        if request.header["kind"] == "hop":
            six.restart()

    six.connection.reply_faults = {second: silent}
    sealed = run(rounds=1, out=tmp_path / "run")
    assert {(each["node"], each["what"]) for each in lines(tmp_path / "run", "events.jsonl")} == {
        (second, "no reply in 0.05 s")
    }
    assert (first, "reseal") in six.connection.log
    kept = list((six.folder / first).rglob("out-*.safetensors"))
    assert kept
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
    nodes = make_six()
    nodes.connection.reply_faults = {second: lambda request, reply: None}
    assert torch.equal(run(rounds=1, **{"route.handover": "server"}).weights, sealed.weights)


def test_a_route_whose_last_node_dies_is_lost_and_the_round_repeats_without_it(six, tmp_path):
    seen = watched(six)
    run("fedcyclic", rounds=1)
    *_, before, last = nodes_of_route(seen)

    def die(request, reply):
        six.connection.offline = {last}

    six.connection.reply_faults = {last: die}
    run("fedcyclic", rounds=1, out=tmp_path / "run")
    events = [(each.get("node"), each["what"]) for each in lines(tmp_path / "run", "events.jsonl")]
    assert (last, "no reply in 0.05 s") in events
    assert (before, "lost with its route") in events
    assert (None, "too few arrivals") in events
    assert events[-1] == (last, "offline")
    [line] = lines(tmp_path / "run", "ledger.jsonl")
    assert len(line["routes"][-1]) == 5


def test_a_model_that_a_node_refuses_does_not_count_and_both_are_named(six, make_six, tmp_path):
    """A node that trains garbage and seals it: the server cannot see it, the next node does."""
    seen = watched(six)
    run(rounds=1)
    _, second, third = nodes_of_route(seen)
    service = six.connection.services[second]
    honest = service._hop

    def garbage(request):
        reply = honest(request)
        return replace(reply, arrays={"models": np.full_like(reply.arrays["models"], np.nan)})

    service._hop = garbage
    six.connection.reply_faults = {}
    sealed = run(rounds=1, out=tmp_path / "run")
    [event] = lines(tmp_path / "run", "events.jsonl")
    assert (event["node"], event["what"]) == (second, f"refused by {third}")
    assert event["done"] == f"refused: refused by {third}: non-finite weights"
    nodes = make_six()
    nodes.connection.offline = {second}
    assert torch.equal(run(rounds=1, **{"route.handover": "server"}).weights, sealed.weights)


@pytest.mark.parametrize("method", ["fedseq", "fedseq+scaffold"])
def test_a_killed_run_resumes_with_the_same_bits(method, six, tmp_path):
    class Kill:
        def on_run_start(self, experiment, round):
            pass

        def on_round_end(self, context):
            if context.round == 1:
                raise KeyboardInterrupt

    whole = run(method, rounds=3)
    for seconds in (0.0, 1e6):  # the last checkpoint is of the round before, or of the beginning
        folder = tmp_path / f"run {seconds}"
        with pytest.raises(KeyboardInterrupt):
            run(method, rounds=3, out=folder, callbacks=Kill(), **{"checkpoint.seconds": seconds})
        six.restart()
        assert torch.equal(fr.resume(folder).weights, whole.weights)


def test_envelopes_that_the_superlink_changes_or_replays_are_refused(six, tmp_path):
    """It changes both ways: the server sees altered replies, the node altered envelopes."""
    reply_of, first = six.connection._reply, {}

    def replaying(node, request):
        if "envelope" in request.arrays:
            first.setdefault(node, request.arrays["envelope"])
            request = replace(request, arrays={**request.arrays, "envelope": first[node]})
        return reply_of(node, request)

    six.connection._reply = replaying
    run("fedcyclic", rounds=2, out=tmp_path / "run", **{"recovery.repeats": 0, "route.order": "fixed"})
    events = lines(tmp_path / "run", "events.jsonl")
    assert {each["round"] for each in events} == {2}
    assert {each["what"] for each in events} == {"reply to another request", "lost with its route", "too few arrivals"}


@pytest.mark.parametrize(
    ("method", "settings", "problem"),
    [
        ("fedseq", {"grouping.max_clients": 1, "grouping.min_samples": 1}, "has 1 client; use larger groups"),
        ("fedseq+scaffold", {"grouping.max_clients": 2}, "needs 3 clients or more on every route .* has 2 clients"),
        ("fedcyclic", {"fraction": 0.2}, "has 1 client"),
    ],
)
def test_routes_that_would_show_single_clients_are_refused(method, settings, problem, six):
    with pytest.raises(fr.SpecError, match=problem):
        run(method, **settings)


def test_what_cannot_be_sealed_is_refused_in_one_line(six, make_six):
    with pytest.raises(
        fr.SpecError, match=r"'fedavg' has no route through several clients, .* route\.handover=sealed, or add \+dp"
    ):
        fr.run("fedavg", engine="flower", data="nodes", **SEALED)
    with pytest.raises(fr.SpecError, match="where routes share clients that keep state"):
        run("spfl+scaffold")
    with pytest.raises(fr.SpecError, match="'sign-flip' changes models on the way, and nodes of sealed routes refuse"):
        run(faults=[{"what": "sign-flip"}])
    with pytest.raises(fr.SpecError, match=r"'sealed' needs to know the next client in advance; set route\.mode=sync"):
        run("fedasyncseq", **GROUPS)
    with pytest.raises(
        fr.EngineError, match=r"all 6 nodes take part in sealed routes only .* set route\.handover=sealed"
    ):
        run("fedseq", **{"route.handover": "server"})
    assert six.connection.log == []  # all of this is known before anything is sent
    make_six()
    with pytest.raises(fr.EngineError, match=r"node 'n00' has no roster, which 'sealed' needs; start it with --roster"):
        run()


def place_of(nodes, method="fedcyclic"):
    """Real requests of one round, hop by hop."""
    seen = watched(nodes)
    run(method, rounds=1)
    return hops_of(seen)


def test_a_server_that_breaks_the_rules_gets_no_single_model(six):
    """The node decides, whatever the server says."""
    hops = place_of(six)
    (first, _), (second, _), *_ = hops
    one, two = (
        six.connection.services[each.header["sealed"]["plan"][place]] for place, each in enumerate((first, second))
    )

    def ask(node, request, arrays=None, **sealed):
        header = {**request.header, "sealed": {**request.header["sealed"], **sealed}}
        return node.respond(Message(json.loads(json.dumps(header)), arrays or request.arrays)).header.get("reason", "")

    plan = first.header["sealed"]["plan"]
    assert "the model has the work of 1 different clients" in ask(one, first, to_hop=None)
    alone = replace(first, header={**first.header, "hop": [*first.header["hop"][:5], 1]})
    assert "the route has 1 different clients" in ask(one, alone, plan=plan[:1], to_hop=None)
    assert "'server' is on the route, but not in the roster" in ask(one, first, plan=[plan[0], "server", *plan[2:]])
    assert "is not that of" in ask(two, second, plan=plan[::-1])
    assert "it never leaves in the clear" in ask(two, second, to_hop=None)  # it has been sealed for the third
    stolen = six.connection.services[plan[3]].facts().sealing.model_dump()
    assert "the sealing key of" in ask(one, first, receiver=stolen)
    assert "another hop, round or run" in ask(two, second, plan=[*plan[:4], plan[5], plan[4]])
    still = json.loads(second.header["job"])
    still["train"]["lr"] = 1e-9  # with it, the second node would release the model of the first
    other = replace(second, header={**second.header, "job": json.dumps(still)})
    assert "another hop, round or run" in ask(two, other)
    short = replace(second, header={**second.header, "typical_norm": 1e-9})  # nor with updates of no length
    assert "another hop, round or run" in ask(two, short)
    zeroed = replace(second, header={**second.header, "tamper": {"what": "explode", "factor": 0.0}})
    assert "faults that tamper with models are simulated" in ask(two, zeroed)
    longer = replace(first, header={**first.header, "hop": [*first.header["hop"][:5], 99]})
    assert "this hop of the route is not that of" in ask(one, longer)
    changes = {**json.loads(first.header["job"]), "transfer": {"codec": "top-k", "keep": 0.5}}
    other = replace(first, header={**first.header, "job": json.dumps(changes)})
    assert "a codec of changes shows the server the last client's own" in ask(one, other)
    again = {**first.header, "kind": "reseal"}
    assert "it never leaves in the clear" in ask(one, replace(first, header=again), to_hop=None)


def test_nodes_check_what_they_receive(six):
    hops = place_of(six)
    second = hops[1][0]
    node = six.connection.services[second.header["sealed"]["plan"][1]]
    from fedrelay.engines.flower.node import sealed_hops

    worker = node._context(second.header)
    model = torch.ones(worker.job.layout.size)
    start = torch.zeros_like(model)

    def problem(model, guard=None, **header):
        job = replace(worker.job, guard=worker.job.guard.model_copy(update=guard or {}))
        checked = replace_worker(worker, job)
        found = {"typical_norm": 1.0, "sealed": {"tolerance": None}, **header}
        return sealed_hops._problem(checked, model, {}, start, 2, found)

    assert problem(model) == ""
    assert problem(model * np.nan) == "non-finite weights"
    assert problem(model * 1e30) == "weights beyond 1e+08"
    assert problem(start) == "nothing but zeros"
    assert problem(model, {"norm": 1.0}) == "a longer way from the round's model than 2 hops may go"
    assert problem(model, {"norm": 1e6}) == ""


def replace_worker(worker, job):
    from types import SimpleNamespace

    return SimpleNamespace(job=job, hop_runner=worker.hop_runner)


def test_a_model_that_is_worse_on_held_out_samples_is_refused(six):
    second = place_of(six)[1][0]
    node = six.connection.services[second.header["sealed"]["plan"][1]]
    from fedrelay.engines.flower.node import sealed_hops

    worker = node._context(second.header)
    own = FederationWithTest(worker.job.federation, six.federation.test)
    checked = replace_worker(worker, replace(worker.job, federation=own))
    start, bad = torch.zeros(worker.job.layout.size), 100 * torch.randn(worker.job.layout.size)
    found = {"typical_norm": 0.0, "sealed": {"tolerance": 1.0}}
    assert sealed_hops._problem(checked, bad, {}, start, 1, found) == "a higher loss on held-out samples"
    assert sealed_hops._problem(checked, start + 1e-3, {}, start, 1, found) == ""


class FederationWithTest(FederationWrapper):
    def __init__(self, inner, test):
        super().__init__(inner)
        self.__dict__["samples"] = test

    @property
    def test(self):
        return self.samples


def test_a_simulation_trains_sealed_routes_like_direct_ones():
    settings = {"data": "digits", "clients": 6, "rounds": 2, "fraction": 1.0, "seed": 3, **GROUPS}
    sealed, direct = (fr.run("fedseq", **settings, **{"route.handover": each}) for each in ("sealed", "direct"))
    assert torch.equal(sealed.weights, direct.weights)
    assert sealed.transfers == {"s2c": 12, "c2s": 12, "c2c": 0}


def test_single_nodes_that_are_sealed_are_named_before_an_open_run(six, caplog):
    """They decline its hops; the others take part."""
    others = [facts.model_copy(update={"sealing": None}) for facts in six.remote.facts[2:]]
    six.remote = replace(six.remote, facts=(*six.remote.facts[:2], *others))
    with pytest.raises(fr.EngineError):
        run("fedseq", **{"route.handover": "server", "rounds": 9})
    named = [
        line for line in caplog.messages if "takes part in sealed routes only (--roster) and will be skipped" in line
    ]
    assert [line.split("'")[1] for line in named] == ["n00", "n01"]
