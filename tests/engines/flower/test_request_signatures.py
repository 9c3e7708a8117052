"""Requests that the server did not make, or not for this node and this moment, are not answered; the node says why."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace

import numpy as np
import pytest

import fedrelay as fr
from fedrelay.engines.flower.messages import FAILED, Message
from fedrelay.errors import SpecError

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

from fedrelay.engines.flower import credentials, request_signatures
from fedrelay.engines.flower.credentials import make_server_folder, requests_certificate, requests_key
from fedrelay.engines.flower.request_signatures import RequestSigner

USUAL = {"rounds": 2, "batch_size": 64, "seed": 3, "fraction": 1.0, "recovery.timeout": 0.05, "checkpoint.seconds": 0.0}
GROUPS = {"grouping.max_clients": 3, "grouping.min_samples": 5000}


@pytest.fixture
def three(digit_nodes, tmp_path):
    """Three nodes that answer requests of one server only."""
    make_server_folder(tmp_path / "server", ["localhost"])
    return digit_nodes(3, signed=True, server=tmp_path / "server")


def run(**settings):
    return fr.run("fedseq", engine="flower", data="nodes", **{**USUAL, **GROUPS, **settings})


def events(folder):
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def signed(nodes, name="n00", seconds=60.0, kind="describe", **header):
    request = Message({"kind": kind, "nonce": "5", **header})
    return nodes.signatures.sign_request(name, request, seconds)


def reason(nodes, request, name="n00"):
    """Why a node does not answer; empty if it does."""
    reply = nodes.connection.services[name].respond(request)
    return reply.header["reason"] if reply.header["kind"] == FAILED else ""


def without(request, *names):
    return replace(request, header={name: value for name, value in request.header.items() if name not in names})


def with_header(request, **changes):
    return replace(request, header={**request.header, **changes})


def test_a_run_goes_through_and_has_the_same_bits(three, make_nodes, use_nodes, tmp_path):
    checked = run(out=tmp_path / "checked")
    assert not (tmp_path / "checked" / "events.jsonl").exists()
    use_nodes(make_nodes(three.federation))
    assert run().weights_sha256 == checked.weights_sha256


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda request: without(request, "signature"), "unsigned request"),
        (lambda request: without(request, "certificate"), "unsigned request"),
        (lambda request: with_header(request, signature="no number"), "unsigned request"),
        (lambda request: with_header(request, signature="00" * 96), "altered request"),
        (lambda request: with_header(request, kind="evaluate"), "altered request"),
        (lambda request: with_header(request, nonce="6"), "altered request"),
        (lambda request: with_header(request, expires=1e12), "altered request"),
        (lambda request: replace(request, arrays={"models": np.zeros(3)}), "altered request"),
        (lambda request: with_header(request, certificate="no certificate"), "request with a wrong certificate"),
        (lambda request: with_header(request, certificate="\ud800"), "request with a wrong certificate"),
        (lambda request: with_header(request, certificate=7), "unsigned request"),
    ],
)
def test_a_request_that_the_server_did_not_make_is_not_answered(change, why, three):
    request = signed(three)
    assert reason(three, change(request)).startswith(f"{why}: ")
    assert reason(three, request) == ""


def test_a_request_is_answered_by_its_own_node_and_once(three):
    request = signed(three)
    assert reason(three, request, "n01") == "request for another node: somebody between sent it here"
    assert reason(three, request) == ""
    assert reason(three, request) == "repeated request: somebody between sent it again"
    assert reason(three, signed(three, nonce="6")) == ""


def test_a_request_that_was_held_back_is_not_answered(three, monkeypatch):
    request, now = signed(three, seconds=60.0), request_signatures.time.time()
    monkeypatch.setattr(request_signatures.time, "time", lambda: now + 60.0 + request_signatures.CLOCK_SLACK - 5)
    assert reason(three, request) == ""
    monkeypatch.setattr(request_signatures.time, "time", lambda: now + 60.0 + request_signatures.CLOCK_SLACK + 5)
    assert reason(three, request).startswith("late request: it expired ")
    assert reason(three, signed(three, nonce="6")) == ""
    assert list(three.connection.services["n00"].requests.answered) == ["6"]  # those that are void are forgotten


def test_who_has_the_keys_of_the_superlink_cannot_ask(three, tmp_path):
    """Its folder has the key and certificate of TLS, and the secret; the other server has an authority of its own."""
    folder, keys = tmp_path / "server", {name: key.public_key() for name, key in three.keys.items()}
    tls = credentials.serialization.load_pem_private_key((folder / "server.key").read_bytes(), None)
    superlink = RequestSigner(tls, (folder / "server.pem").read_text(), keys)
    assert reason(three, superlink("n00", Message({"kind": "describe"}), 60.0)).endswith("not for signing requests")
    borrowed = RequestSigner(tls, requests_certificate(folder), keys)
    assert reason(three, borrowed("n00", Message({"kind": "describe"}), 60.0)).startswith("altered request")
    make_server_folder(tmp_path / "other", ["localhost"])
    other = RequestSigner(requests_key(tmp_path / "other"), requests_certificate(tmp_path / "other"), keys)
    assert reason(three, other("n00", Message({"kind": "describe"}), 60.0)).endswith("ca.pem has signed it")


def test_a_request_that_is_changed_on_the_way_trains_nothing_and_is_named(three, tmp_path):
    reply, trained = three.connection._reply, []
    service = three.connection.services["n01"]
    service._hop = lambda request, hop=service._hop: (trained.append(request), hop(request))[1]

    def changed(node, request):
        if node == "n01":
            request = replace(request, arrays={"models": request.arrays["models"] + np.float32(1)})
        return reply(node, request)

    three.connection._reply = changed
    run(out=tmp_path / "run", rounds=1)
    [event] = events(tmp_path / "run")
    assert (event["node"], event["what"]) == ("n01", "reply to another request")
    assert trained == []


def test_a_server_without_a_valid_key_for_requests_is_told_what_to_do(tmp_path, monkeypatch):
    make_server_folder(tmp_path, ["localhost"])
    (tmp_path / "requests.key").unlink()
    with pytest.raises(SpecError, match=r"requests\.key: the key that signs requests cannot be read .* --renew"):
        requests_key(tmp_path)
    credentials.renew_certificate(tmp_path)
    requests_certificate(tmp_path)
    (tmp_path / "requests.key").chmod(0o644)
    with pytest.raises(SpecError, match="others can read this key"):
        requests_key(tmp_path)
    (tmp_path / "requests.key").chmod(0o600)
    (tmp_path / "requests.pem").write_bytes((tmp_path / "server.pem").read_bytes())
    with pytest.raises(
        SpecError, match=r"requests\.pem: it is not for signing requests; make a new one with: .*--renew"
    ):
        requests_certificate(tmp_path)
    monkeypatch.setattr(credentials, "VALID", datetime.timedelta(minutes=-1))
    credentials.renew_certificate(tmp_path)
    with pytest.raises(SpecError, match="which is over or has not begun by the clock of this machine"):
        requests_certificate(tmp_path)
    monkeypatch.undo()
    credentials.renew_certificate(tmp_path)
    make_server_folder(tmp_path / "other", ["localhost"])
    (tmp_path / "requests.key").write_bytes((tmp_path / "other" / "requests.key").read_bytes())
    with pytest.raises(SpecError, match=r"requests\.pem: is not for .*requests\.key"):
        requests_certificate(tmp_path)
