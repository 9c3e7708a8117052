"""What goes wrong at nodes: chains go on, nothing trained is lost, and a resumed run ends with the same bits."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import fedrelay as fr
from fedrelay.engines.flower.messages import Message
from fedrelay.engines.flower.server.connection_interface import SuperLinkUnreachable

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

USUAL = {"rounds": 3, "batch_size": 64, "seed": 3, "fraction": 1.0, "recovery.timeout": 0.05}
GROUPS = {"grouping.max_clients": 3, "grouping.min_samples": 5000}


class Watcher:
    """Does something after a round."""

    def __init__(self, act):
        self.act = act

    def on_round_end(self, context):
        self.act(context.round)

    profiling = started = stopping = lambda self, *_: None


def run(method="fedseq", **settings):
    groups = GROUPS if method.startswith("fedseq") else {}
    return fr.run(method, engine="flower", data="nodes", **{**USUAL, **groups, **settings})


def lines(folder, name):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


@pytest.fixture
def make_six(digit_nodes):
    return lambda: digit_nodes(6)


@pytest.fixture
def six(make_six):
    """Six nodes, through which experiments run."""
    return make_six()


def with_header(**changes):
    return lambda request, reply: replace(reply, header={**reply.header, **changes})


def with_models(change):
    return lambda request, reply: replace(reply, arrays={"models": change(reply.arrays["models"])})


@pytest.mark.parametrize(
    ("fault", "done"),
    [
        (lambda request, reply: None, "passed over: no reply in 0.05 s"),
        (lambda request, reply: "the disk is full", "passed over: the disk is full"),
        (lambda request, reply: Message({}), "refused: bad reply: request must be a whole number"),
        (with_header(request=7), "refused: bad reply: it answers another request"),
        (with_header(samples=10**9), "refused: bad reply: it reports 1000000000 samples instead of"),
        (with_header(loss="low"), "refused: bad reply: loss must be a finite number"),
        (with_header(names=["spare"]), "refused: bad reply: its models have other names"),
        (with_models(lambda models: models[:, :-1]), "refused: bad reply: its models have a wrong shape"),
        (with_models(lambda models: models.astype(np.float64)), "refused: bad reply: its models have type float64"),
        (with_models(lambda models: np.full_like(models, np.nan)), "refused: non-finite weights"),
        (with_models(lambda models: models + 1e9), "refused: weights beyond 1e+08"),
    ],
)
def test_a_chain_goes_on_past_a_node_that_fails(fault, done, six, make_six, tmp_path):
    six.connection.reply_faults["n02"] = fault
    skip = {"guard.on_divergence": "skip"}
    result = run(out=tmp_path / "run", **skip)
    events = lines(tmp_path / "run", "events.jsonl")
    assert [(event["round"], event["client"]) for event in events] == [(1, 2), (2, 2), (3, 2)]
    assert all(event["done"].startswith(done) and event["node"] == "n02" for event in events)
    six.connection.reply_faults.clear()
    six.connection.offline = {"n02"}
    assert torch.equal(run(**skip).weights, result.weights)


@pytest.mark.parametrize(
    ("fault", "transfers", "updates"),
    [
        (None, (36, 36), 18),  # six a round
        ("away", (30, 30), 15),
        (lambda request, reply: None, (36, 30), 15),
        (lambda request, reply: "no graphics card", (36, 30), 15),
        (with_models(lambda models: models[:, :-1]), (36, 36), 18),
    ],
    ids=["all well", "away", "silent", "failed", "a bad reply"],
)
def test_the_ledger_counts_what_really_travelled(fault, transfers, updates, six, tmp_path):
    """SCAFFOLD sends a model and a correction each way."""
    six.connection.offline = {"n02"} if fault == "away" else set()
    six.connection.reply_faults = {"n02": fault} if callable(fault) else {}
    result = run("fedavg+scaffold", out=tmp_path / "run")
    assert result.transfers == {"s2c": transfers[0], "c2s": transfers[1], "c2c": 0}
    assert result.client_updates == updates
    [line, *_] = lines(tmp_path / "run", "ledger.jsonl")
    assert ([2] in line["routes"]) == (updates == 18)
    assert line.get("unanswered") == ([2] if (transfers[0], updates) == (36, 15) else None)


def test_a_warning_says_who_failed(six, caplog):
    six.connection.reply_faults = dict.fromkeys(six.names, lambda request, reply: "no graphics card")
    with pytest.raises(fr.EngineError):
        run(rounds=9)
    assert "the round repeats (node 'n00': no graphics card; node 'n01': no graphics card;" in caplog.text


def test_garbage_ends_the_run_where_the_guard_says_so(six):
    six.connection.reply_faults["n02"] = with_models(lambda models: np.full_like(models, np.nan))
    with pytest.raises(fr.DivergedError, match=r"left client 2 .* with non-finite weights"):
        run()


def test_long_updates_are_shortened_at_the_server(six, tmp_path):
    six.connection.reply_faults["n02"] = with_models(lambda models: models + 1)
    run(out=tmp_path / "run", **{"guard.norm": 1.5})
    events = lines(tmp_path / "run", "events.jsonl")
    assert (2, "long update", "shortened") in {(each["client"], each["what"], each["done"]) for each in events}


def test_a_node_that_comes_back_is_used_again(six, tmp_path):
    six.connection.offline = {"n01"}
    run("fedseq+scaffold", out=tmp_path / "run", callbacks=Watcher(lambda round: six.connection.offline.clear()))
    events = lines(tmp_path / "run", "events.jsonl")
    assert [(event["round"], event["client"], event["what"]) for event in events] == [(1, 1, "offline")]


def test_a_hop_that_was_never_accepted_leaves_no_trace(make_six):
    """A node that trains but whose replies get lost is the same as a node that is not there."""
    lossy = make_six()
    lossy.connection.reply_faults["n03"] = lambda request, reply: None if request.header["hop"][0] < 3 else reply
    lost = run("fedseq+scaffold", rounds=4)
    late = make_six()
    late.connection.offline = {"n03"}

    def come_back(round):
        late.connection.offline = {"n03"} if round < 2 else set()

    assert torch.equal(run("fedseq+scaffold", rounds=4, callbacks=Watcher(come_back)).weights, lost.weights)


def test_retries_ask_the_same_node_again(six, tmp_path):
    seen = []

    def second_time(request, reply):
        seen.append(request.header["request"])
        return None if seen.count(request.header["request"]) == 1 else reply

    six.connection.reply_faults["n04"] = second_time
    result = run("fedseq+scaffold", out=tmp_path / "run", **{"recovery.policy": "retry", "recovery.retries": 1})
    assert not (tmp_path / "run" / "events.jsonl").exists()
    six.connection.reply_faults.clear()
    assert torch.equal(run("fedseq+scaffold").weights, result.weights)


def test_a_repeated_round_reads_the_state_from_before_it(six):
    """All replies of one attempt get lost, although the nodes have written what they keep."""
    read = {}

    def lost(request, reply):
        round, _, _, client, attempt, *_ = request.header["hop"]
        read[round, client, attempt] = request.header["state"]
        return None if (round, attempt) == (2, 0) else reply

    six.connection.reply_faults = dict.fromkeys(six.names, lost)
    assert run("fedavg+scaffold").fault_events == {
        **{f"no reply in 0.05 s (n0{node})": 1 for node in range(6)},
        "too few arrivals": 1,
    }
    assert all(read[2, client, 1] == read[2, client, 0] > 0 for client in range(6))
    assert all(read[3, client, 0] > read[2, client, 1] for client in range(6))


@pytest.mark.parametrize(
    ("method", "seconds"), [("fedseq+scaffold", 0), ("fedseq+scaffold", 1e6), ("spfl+scaffold", 1e6)]
)
def test_a_killed_run_resumes_with_the_same_bits(method, seconds, six, tmp_path):
    """Whether the last checkpoint is of the round before or of the beginning, and although all nodes died too."""

    def kill(round):
        if round == 2:
            raise KeyboardInterrupt("killed")

    whole, settings = run(method), {"checkpoint": {"seconds": seconds}}
    with pytest.raises(KeyboardInterrupt):
        run(method, out=tmp_path / "run", callbacks=Watcher(kill), **settings)
    six.restart()
    assert torch.equal(fr.resume(tmp_path / "run").weights, whole.weights)


def killed_after(round, folder, method="fedseq+scaffold"):
    """A run that died, with a checkpoint of every round."""

    def kill(done):
        if done == round:
            raise KeyboardInterrupt("killed")

    with pytest.raises(KeyboardInterrupt):
        run(method, out=folder, callbacks=Watcher(kill), **{"checkpoint": {"seconds": 0}})


def test_a_run_that_was_moved_finds_its_client_state(six, tmp_path):
    whole = run("fedseq+scaffold")
    killed_after(2, tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    assert torch.equal(fr.resume(tmp_path / "elsewhere").weights, whole.weights)
    assert not (tmp_path / "elsewhere" / "events.jsonl").exists()


def test_a_run_folder_without_its_name_is_refused(six, tmp_path):
    """The name tells nodes which client state belongs to the run, so no other may take its place."""
    about = tmp_path / "run" / "run.json"
    killed_after(2, tmp_path / "run")
    facts = json.loads(about.read_text())
    del facts["name"]
    about.write_text(json.dumps(facts))
    with pytest.raises(fr.RunFolderError, match="the name of the run cannot be read"):
        fr.resume(tmp_path / "run")


def test_of_two_copies_of_a_run_neither_reads_what_the_other_wrote(six, tmp_path):
    """The first takes what it needs; nodes say to the second that it is gone, instead of handing out another's."""
    whole = run("fedseq+scaffold")
    killed_after(1, tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert torch.equal(fr.resume(tmp_path / "run").weights, whole.weights)
    read, kept = set(), {int(path.stem) for path in six.folder.rglob("*.safetensors")}

    def note(request, reply):
        read.add(request.header["state"])
        return reply

    six.connection.reply_faults = dict.fromkeys(six.names, note)
    with pytest.raises(fr.EngineError, match="the state of this client is lost"):
        fr.resume(tmp_path / "copy")
    assert read
    assert not read & kept


def test_nodes_remove_state_that_is_not_needed_any_more(six, tmp_path):
    run("fedseq+scaffold", rounds=6, out=tmp_path / "run", **{"checkpoint": {"seconds": 0}})
    for name in six.names:
        [states] = (six.folder / name / "states").iterdir()
        assert 1 <= len(list(states.iterdir())) <= 2


def test_a_run_without_online_nodes_ends_and_can_be_resumed(six, tmp_path):
    six.connection.offline = set(six.names)
    with pytest.raises(fr.EngineError, match=r"no node is online \(waited 0.2 s for n00"):
        run(out=tmp_path / "run")
    six.connection.offline = set()
    assert fr.resume(tmp_path / "run").complete


def test_a_run_that_trains_nothing_ends(six):
    six.connection.reply_faults = dict.fromkeys(six.names, lambda request, reply: "no graphics card")
    with pytest.raises(
        fr.EngineError, match="no usable model arrived in 8 attempts in a row; most common reason: no graphics card"
    ):
        run(rounds=9)


def test_requests_in_flight_are_sent_again_after_a_failure(six, tmp_path):
    whole, calls, receive = run(), [], six.connection.receive

    def flaky(numbers, largest):
        calls.append(numbers)
        if len(calls) % 3 == 0:
            raise SuperLinkUnreachable("gone")
        return receive(numbers, largest)

    six.connection.receive = flaky
    assert torch.equal(run(out=tmp_path / "run").weights, whole.weights)
    assert six.connection.reconnected > 0
    events = lines(tmp_path / "run", "events.jsonl")
    assert [event["what"] for event in events] == ["interrupted"] * six.connection.reconnected
    assert events[0]["done"].startswith("gone; back after 0 s, requests sent again: ")
    assert events[0]["client"] == -1


def test_all_routes_are_in_flight_at_once(six):
    run("spfl", rounds=1)
    assert six.connection.most == 6


def test_lost_client_state_is_reported(six, tmp_path):
    def empty(round):
        for path in (six.folder / "n05" / "states").rglob("*.safetensors"):
            path.unlink()

    run("fedavg+scaffold", out=tmp_path / "run", callbacks=Watcher(empty))
    events = lines(tmp_path / "run", "events.jsonl")
    assert {(event["round"], event["client"], event["what"]) for event in events} == {
        (round, 5, "failed") for round in (2, 3)
    }
    assert all("the state of this client is lost: was the node's folder emptied?" in event["done"] for event in events)
