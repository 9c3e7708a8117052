"""Nodes that lie about themselves: what they can gain by it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

import fedrelay as fr
from fedrelay.data.open_federation import open_federation
from fedrelay.engines.flower.node_facts import parse_facts
from fedrelay.engines.flower.server.claims import Remark
from fedrelay.experiment.spec import DataSettings

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

CLAIMED = 10**6


@pytest.fixture
def six(digit_nodes):
    """Six nodes of equal size."""
    return digit_nodes(6, alpha=100)


def run(method="fedavg", **settings):
    usual = {"rounds": 1, "epochs": 1, "batch_size": 64, "seed": 3, "fraction": 1.0}
    return fr.run(method, engine="flower", data="nodes", **{**usual, **settings})


class DieAfterOneRound:
    def on_run_start(self, experiment, round):
        pass

    def on_round_end(self, context):
        raise KeyboardInterrupt


def claim(nodes, name, samples):
    """The node says that it has this many samples, and sends a model of nothing but ones."""
    number = nodes.names.index(name)
    facts = list(nodes.remote.facts)
    facts[number] = facts[number].model_copy(update={"samples": samples})
    nodes.remote = replace(nodes.remote, facts=tuple(facts))

    def lie(request, reply):
        header = {**reply.header, "samples": samples, "steps": -(-samples // 64)}
        return replace(reply, header=header, arrays={"models": np.ones_like(reply.arrays["models"])})

    nodes.connection.reply_faults[name] = lie


def test_a_node_that_claims_many_samples_counts_for_its_largest_share_at_most(six):
    honest = [samples for client, samples in enumerate(six.remote.sample_counts().tolist()) if client != 2]
    six.connection.offline = {"n02"}
    mean = run().weights  # of the five others
    six.connection.offline = set()
    claim(six, "n02", CLAIMED)
    owned = run().weights
    share = CLAIMED / (CLAIMED + sum(honest))
    assert torch.allclose(owned, share + (1 - share) * mean, atol=1e-5)  # without the guard it owns the model
    capped = run(**{"guard.largest_share": 0.25}).weights
    assert torch.allclose(capped, 0.25 + 0.75 * mean, atol=1e-3)


@pytest.mark.parametrize(
    ("lie", "done"),
    [
        ({"steps": 1}, "it reports 1 steps instead of 4"),  # FedNova would make its change four times as large
        ({"steps": 2**31}, "it reports 2147483648 steps instead of 4"),  # and here count to two billion
        ({"seconds": -1.0}, "it reports -1 s of work, 0."),
        ({"seconds": 1e300}, "it reports 1e+300 s of work, 0."),
    ],
)
def test_impossible_reports_of_a_hop_are_refused(lie, done, six, tmp_path):
    six.connection.reply_faults["n02"] = lambda request, reply: replace(reply, header={**reply.header, **lie})
    run("fednova", out=tmp_path / "run", **{"guard.on_divergence": "skip"})
    [event] = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert (event["node"], event["what"]) == ("n02", "bad reply")
    assert event["done"].startswith(f"refused: bad reply: {done}")


def test_unusual_claims_are_events_of_the_run(six, tmp_path):
    six.remote = replace(six.remote, remarks=(Remark("n02", "claims 9,000 samples; it claimed 300"),))
    settings = {"rounds": 2, "out": tmp_path / "run", "checkpoint.seconds": 0.0}
    with pytest.raises(KeyboardInterrupt):
        run(**settings, callbacks=DieAfterOneRound())
    result = fr.resume(tmp_path / "run")  # with a new engine, which reports the claim again
    assert result.fault_events == {}
    [event] = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert (event["round"], event["node"], event["what"]) == (1, "n02", "unusual claim")
    assert event["done"] == "accepted: it claims 9,000 samples; it claimed 300"


def test_a_curious_server_reads_label_sets_from_the_last_bias(make_nodes, use_nodes):
    """What docs/security.md warns of: nodes share no class counts, and the server knows their labels all the same."""
    nodes = make_nodes(open_federation(DataSettings(name="digits", clients=5, partition="shards"), 3))
    use_nodes(nodes)
    assert all(facts.histogram is None for facts in nodes.remote.facts)
    raised = {}

    def look(request, reply):
        sent, returned = request.arrays["models"][0], reply.arrays["models"][0]
        raised[request.header["hop"][3]] = set(np.flatnonzero(returned[-10:] > sent[-10:]).tolist())
        return reply

    nodes.connection.reply_faults = dict.fromkeys(nodes.names, look)
    run(model="logistic")
    assert raised == {client: set(nodes.federation.train_samples(client).y.tolist()) for client in range(5)}


@pytest.mark.parametrize(("rows", "samples", "validations"), [(10**12, 1000, 0), (999, 1000, 0), (1000, 900, 0)])
def test_sums_of_a_table_over_other_rows_than_the_samples_are_refused(rows, samples, validations):
    """They would set the scaling of all nodes, though the number of samples is agreed."""
    sums = {"rows": rows, "numbers": {"age": {"known": rows, "total": 0.0, "squares": 1.0}}, "categories": {}}
    header = {"samples": samples, "tests": 0, "validations": validations, "classes": 2, "shape": [1], "kind": "tabular"}
    header |= {"fingerprint": "f", "table": {"target": "ill", "labels": ["no", "yes"], "statistics": sums}}
    with pytest.raises(ValidationError, match="the sums of the table are over another number of rows"):
        parse_facts(header)
    right = {**header, "samples": rows - 100, "validations": 100}
    assert parse_facts(right).table.statistics.rows == rows
