"""Encoded models at nodes: the same bits as in a simulation, the bytes of the ledger, and damaged replies."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.conftest import make_federation

import fedrelay as fr
from fedrelay.engines.flower.messages import ENCODED, MODELS

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

SETTINGS = {"rounds": 2, "batch_size": 4, "seed": 3, "lr": 0.3, "fraction": 1.0, "model": "mlp", "model.hidden": (8,)}
CHAINS = {"grouping": {"max_clients": 4, "min_samples": 500}}


def settings_of(method, codec):
    chains = {**CHAINS, "route": {"handover": "server"}} if method.startswith("fedseq") else {}
    return {**SETTINGS, **chains, "transfer": {"codec": codec}}


@pytest.mark.parametrize("codec", ["float16", "bfloat16", "int8", "top-k"])
@pytest.mark.parametrize("method", ["fedavg", "fedseq+glam", "fedseq+scaffold"])
def test_the_same_bits_as_a_simulation_and_the_bytes_of_the_ledger(method, codec, make_nodes, use_nodes, tmp_path):
    federation = make_federation([8, 12, 9, 5])
    settings = settings_of(method, codec)
    here = fr.run(method, data=federation, workers=1, lanes=1, **settings)
    found, down, up = make_nodes(federation), [], []

    def count_bytes(request, reply):
        if request.header["kind"] == "hop":
            down.append(sizes(request))
            up.append(sizes(reply))
        return reply

    for node in found.connection.services:
        found.connection.reply_faults[node] = count_bytes
    use_nodes(found)
    there = fr.run(method, engine="flower", data="nodes", out=tmp_path / "run", **settings)
    assert there.weights_sha256 == here.weights_sha256
    assert there.bytes == here.bytes
    lines = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    models = {name: sum(line["payloads"].get(name, 0) for line in lines) for name in ("model", "changed weights")}
    models["round model"] = sum(line["payloads"].get("round model", 0) for line in lines)
    assert sum(models.values()) == sum(down) + sum(up)
    assert here.weights.dtype == torch.float32


def test_sealed_routes_hand_on_encoded_models(make_nodes, use_nodes, tmp_path):
    federation, found = make_federation([8, 12, 9, 5]), {}
    for handover in ("server", "sealed"):
        use_nodes(make_nodes(federation, sealed=handover == "sealed"))
        settings = {**SETTINGS, **CHAINS, "route": {"handover": handover}, "transfer": {"codec": "int8"}}
        found[handover] = fr.run("fedseq+scaffold", engine="flower", data="nodes", **settings)
    opened, sealed = found["server"], found["sealed"]
    assert opened.weights_sha256 == sealed.weights_sha256
    envelopes = sealed.bytes - opened.bytes
    assert envelopes > 0
    assert envelopes % 1024 == 0


def sizes(message):
    """The bytes of the models of a message, encoded or not, without what travels beside them."""
    encoded = message.arrays[ENCODED].nbytes if ENCODED in message.arrays else 0
    names = message.header.get("names", ())
    rows = sum(name in ("recv", "round", "model") for name in names)
    return encoded + (rows * message.arrays[MODELS][0].nbytes if rows else 0)


@pytest.mark.parametrize(
    ("codec", "damage", "reason"),
    [
        ("int8", lambda rows: rows[:, 1:], "bytes instead of"),
        ("int8", lambda rows: np.full_like(rows, 127), "a step that is no number"),
        ("int8", lambda rows: rows.astype(np.float32), "wrong shape or type"),
        ("int8", lambda rows: rows[0], "wrong shape or type"),
        ("top-k", lambda rows: np.zeros_like(rows), "does not name"),
        ("float16", lambda rows: rows[:0], "wrong shape or type"),
    ],
)
def test_a_damaged_encoding_is_refused_and_names_the_node(codec, damage, reason, make_nodes, use_nodes, tmp_path):
    federation = make_federation([8, 12, 9])
    found = make_nodes(federation)

    def damaged(request, reply):
        if ENCODED not in reply.arrays:
            return reply
        return replace(reply, arrays={**reply.arrays, ENCODED: damage(reply.arrays[ENCODED])})

    found.connection.reply_faults[found.names[1]] = damaged
    use_nodes(found)
    settings = {**SETTINGS, "rounds": 1, "transfer": {"codec": codec}, "recovery.repeats": 0}
    result = fr.run("fedavg", engine="flower", data="nodes", out=tmp_path / "run", **settings)
    assert result.weights.isfinite().all()
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    [event] = [each for each in events if reason in json.dumps(each)]
    assert found.names[1] in json.dumps(event)
