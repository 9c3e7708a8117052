"""A SuperLink or proxy that changes, replays, reorders or drops messages is noticed; node and round are named."""

from __future__ import annotations

import functools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import fedrelay as fr
from fedrelay.engines.flower.messages import FAILED, Message, WrongSignature
from fedrelay.engines.flower.server.node_registration import ask_for_facts

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

USUAL = {"rounds": 2, "batch_size": 64, "seed": 3, "fraction": 1.0, "recovery.timeout": 0.05}
GROUPS = {"grouping.max_clients": 3, "grouping.min_samples": 5000}


@pytest.fixture
def three(digit_nodes):
    """Three nodes that sign their replies."""
    return digit_nodes(3, signed=True)


def run(**settings):
    return fr.run("fedseq", engine="flower", data="nodes", **{**USUAL, **GROUPS, **settings})


def events(folder):
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def in_round_two(fault):
    return lambda request, reply: fault(request, reply) if request.header["hop"][0] == 2 else reply


def with_weights(request, reply):
    return replace(reply, arrays={"models": reply.arrays["models"] + np.float32(1e-7)})


def with_header(**changes):
    return lambda request, reply: replace(reply, header={**reply.header, **changes})


def without_signature(request, reply):
    return replace(reply, header={name: value for name, value in reply.header.items() if name != "signature"})


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        (with_weights, "altered reply"),
        (with_header(samples=10**6), "altered reply"),
        (with_header(refused="it is not well"), "altered reply"),
        (with_header(answered_sha256="0" * 64), "altered reply"),
        (with_header(signature="no number"), "unsigned reply"),
        (with_header(signature="00" * 96), "altered reply"),
        (without_signature, "unsigned reply"),
        (lambda request, reply: Message({"kind": FAILED, "reason": "no graphics card"}), "unsigned reply"),
        (lambda request, reply: None, "no reply in 0.05 s"),  # what is dropped looks like a node that is down
    ],
)
def test_tampering_is_noticed_and_named(fault, what, three, tmp_path):
    three.connection.reply_faults["n01"] = in_round_two(fault)
    run(out=tmp_path / "run")
    [event] = events(tmp_path / "run")
    assert (event["round"], event["node"], event["what"]) == (2, "n01", what)


def test_a_replayed_reply_is_noticed_and_named(three, tmp_path):
    first = []

    def replay(request, reply):
        first.append(reply)
        return first[0]

    three.connection.reply_faults["n01"] = replay
    run(out=tmp_path / "run")
    [event] = events(tmp_path / "run")
    assert (event["round"], event["node"], event["what"]) == (2, "n01", "reply to another request")
    assert "replayed or reordered replies, or changed the request" in event["done"]


def test_an_old_reply_to_an_equal_request_is_noticed(three):
    """All requests for facts are equal, but for a random number."""
    names = three.names
    found, _ = ask_for_facts(three.connection, names, names, 1.0, three.signatures)
    assert list(found) == list(names)
    old = three.connection.services["n01"].respond(Message({"kind": "describe"}))
    three.connection.reply_faults["n01"] = lambda request, reply: old
    found, reasons = ask_for_facts(three.connection, names, names, 1.0, three.signatures)
    assert list(found) == [name for name in names if name != "n01"]
    assert reasons["n01"].startswith("reply to another request")


def test_a_header_nested_too_deeply_is_a_bad_reply(three, tmp_path):
    """It would end the server while the signature is checked."""
    deep = functools.reduce(lambda inner, _: [inner], range(20_000), [])
    three.connection.reply_faults["n01"] = in_round_two(with_header(x=deep))
    run(out=tmp_path / "run")
    [event] = events(tmp_path / "run")
    assert (event["round"], event["node"]) == (2, "n01")
    assert "nested too deeply" in event["done"]


def test_replies_of_two_nodes_that_change_places_are_noticed(three, tmp_path):
    """Each reply is signed, but by the other node."""
    settings = {**USUAL, "rounds": 1, "recovery.repeats": 0, "out": tmp_path / "run"}
    receive = three.connection.receive

    def reordered(numbers, largest):
        replies = list(receive(numbers, largest))
        if {request for request, _ in replies} >= set(numbers) and len(replies) == 3:
            (first, one), (second, two), third = replies
            replies = [(first, two), (second, one), third]
        yield from replies

    three.connection.receive = reordered
    fr.run("fedavg", engine="flower", data="nodes", **settings)
    named = {(event["node"], event["what"], event["done"].split("; ")[0]) for event in events(tmp_path / "run")}
    assert len(named) == 2
    for node, what, done in named:
        [other] = {each for each, *_ in named} - {node}
        assert (what, done) == (
            "reply of another node",
            f"refused: reply of another node: {other!r} signed it, not {node!r}",
        )


def test_a_request_that_was_changed_on_the_way_is_noticed(three, tmp_path):
    """The node trains the wrong model in good faith, and says which request it answered."""
    reply = three.connection._reply

    def changed(node, request):
        if node == "n01":
            request = replace(request, arrays={"models": request.arrays["models"] + np.float32(1)})
        return reply(node, request)

    three.connection._reply = changed
    run(out=tmp_path / "run", rounds=1)
    [event] = events(tmp_path / "run")
    assert (event["node"], event["what"]) == ("n01", "reply to another request")


def test_signatures_change_nothing_else(three, make_nodes, use_nodes):
    signed = run().weights
    use_nodes(make_nodes(three.federation))
    assert torch.equal(run().weights, signed)


def test_a_node_signs_why_it_cannot_answer(three, tmp_path):
    (three.folder / "n01").joinpath("states").rename(three.folder / "n01" / "gone")
    service = three.connection.services["n01"]
    request = Message({"kind": "hop", "run": "no run", "request": 1, "oldest_needed": 0})
    reply = service.respond(request)
    assert (reply.header["kind"], reply.header["reason"]) == (FAILED, "run must have 16 hexadecimal digits")
    from fedrelay.engines.flower.message_bytes import message_digest

    three.signatures.check_reply("n01", message_digest(request), reply)
    with pytest.raises(WrongSignature, match="reply of another node: 'n01' signed it, not 'n00'"):
        three.signatures.check_reply("n00", message_digest(request), reply)
