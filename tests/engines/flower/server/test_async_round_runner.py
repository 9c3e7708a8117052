"""FedAsyncSeq by real times of arrival: each node replies after a given number of polls."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from tests.engines.flower.conftest import FakeConnection, share_test_samples

import fedrelay as fr
from fedrelay.data.open_federation import open_federation
from fedrelay.engines.base import RoundInputs
from fedrelay.engines.flower.server.async_round_runner import AsyncRoundRunner
from fedrelay.engines.flower.server.client_state_versions import ClientStateVersions
from fedrelay.engines.flower.server.dispatcher import Dispatcher, Request
from fedrelay.engines.flower.server.hop_request_builder import ActiveRoute
from fedrelay.experiment.spec import DataSettings
from fedrelay.local.client_state import ClientStateStore
from fedrelay.routes.async_progress import AsyncProgress, GroupLeg
from fedrelay.routes.asynchronous import Asynchronous
from fedrelay.routes.base import PlanningContext
from fedrelay.runtime.run_folder_reader import RunFolderReader
from fedrelay.runtime.run_status import RunStatus

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

USUAL = {"batch_size": 64, "seed": 3, "lr": 0.05}
SINGLES = {"grouping.max_clients": 1, "grouping.min_samples": 1}
PAIRS = {"grouping.max_clients": 2, "grouping.min_samples": 5000}


class SlowConnection(FakeConnection):
    """A node replies after a given number of polls; by default, at the first."""

    def __init__(self, services):
        super().__init__(services)
        self.polls, self.latencies, self.sent, self.replies = 0, {}, {}, []

    def send(self, node, message, seconds):
        number = super().send(node, message, seconds)
        if number is not None:
            assert node not in self.busy, "a node has one message at a time"
            self.sent[number] = self.polls
        return number

    @property
    def busy(self):
        return {
            self.pending[number][0] for number in self.sent if number in self.pending and number != str(len(self.log))
        }

    def receive(self, ids, largest):
        self.polls += 1
        due = [n for n in ids if n in self.pending and self.polls - self.sent[n] >= self.latency(self.pending[n])]
        for number, reply in super().receive(due, largest):
            self.replies.append((self.polls, self.names[number], reply))
            yield number, reply

    def latency(self, box):
        return self.latencies.get(box[0], 1) if box[1].header["kind"] == "hop" else 1

    @property
    def names(self):
        return {str(place): node for place, (node, _) in enumerate(self.log, start=1)}

    @property
    def versions(self):
        return Counter(kind for _, kind in self.log)["hop"]


@pytest.fixture
def slow(make_nodes, use_nodes):
    """Nodes of which each takes its time."""

    def make(clients=6):
        found = make_nodes(open_federation(DataSettings(name="digits", clients=clients, alpha=0.3), 3))
        found.connection = SlowConnection(found.connection.services)
        use_nodes(found)
        return found

    return make


def run(method="fedasyncseq", **settings):
    return fr.run(method, engine="flower", data="nodes", **{**USUAL, **settings})


def lines(folder, name):
    path = folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def groups_of(folder):
    return json.loads((folder / "plan.json").read_text())["groups"]


def model_of(reply):
    return torch.from_numpy(reply.arrays["models"][0].copy())


@pytest.fixture
def timeline(slow, tmp_path):
    """W = 2, R = 2: slot 0 takes one poll at its first group and one at its second, slot 1 takes five at its first."""

    def play(wait):
        found = slow(4)
        settings = {**SINGLES, "rounds": 2, "fraction": 0.5, "route.period": 2, "route.wait": wait}
        run(out=tmp_path / "rehearsal", **{**settings, "rounds": 1})
        groups = groups_of(tmp_path / "rehearsal")
        context, route = PlanningContext(4, 0.5, USUAL["seed"], tuple(map(tuple, groups))), Asynchronous(period=2)
        standing = AsyncProgress.after(1, [(), ()])
        first, second = legs = route.legs_for_free_models(context, standing)
        [third] = route.legs_for_free_models(context, standing.started(legs).ended([first]))
        a, b, c = (found.names[leg.clients[0]] for leg in (first, second, third))
        found.connection = SlowConnection(found.connection.services)
        found.connection.latencies = {a: 1, b: 5, c: 1}
        return found, (a, b, c), run(out=tmp_path / "run", **settings)

    return play


def test_a_slow_model_is_left_out_of_the_merge(timeline, tmp_path):
    found, (a, b, c), result = timeline(wait=False)
    assert [(poll, node) for poll, node, _ in found.connection.replies] == [(1, a), (2, c)]
    torch.testing.assert_close(result.weights, model_of(found.connection.replies[1][2]), rtol=0, atol=0)
    clients = {name: client for client, name in enumerate(found.names)}
    first, second = lines(tmp_path / "run", "ledger.jsonl")
    assert (first["routes"], first["merges"]) == ([[clients[a]], []], False)
    assert (second["routes"], second["merges"]) == ([[clients[c]], []], True)
    assert second["unanswered"] == [clients[b]]
    assert [(line["s2c"], line["c2s"], line["client_updates"]) for line in (first, second)] == [(1, 1, 1), (2, 1, 1)]
    [event] = lines(tmp_path / "run", "events.jsonl")
    assert (event["round"], event["node"], event["done"]) == (2, b, "given up: the merge came first")
    assert (
        result.fault_events == RunStatus.of(RunFolderReader.open(tmp_path / "run")).fault_events == {}
    )  # it is how the method goes


def test_a_slow_model_is_waited_for(timeline, tmp_path):
    found, (a, b, c), result = timeline(wait=True)
    assert [(poll, node) for poll, node, _ in found.connection.replies] == [(1, a), (2, c), (5, b)]
    sizes = {name: found.remote.facts[client].samples for client, name in enumerate(found.names)}
    fast, slow = model_of(found.connection.replies[1][2]).double(), model_of(found.connection.replies[2][2]).double()
    seen = sizes[a] + sizes[c]
    expected = (seen * fast + sizes[b] * slow) / (seen + sizes[b])
    torch.testing.assert_close(result.weights, expected.float(), rtol=0, atol=1e-6)
    assert result.transfers == {"s2c": 3, "c2s": 3, "c2c": 0}
    assert result.client_updates == 3
    assert not lines(tmp_path / "run", "events.jsonl")


@pytest.mark.parametrize("term", ["", "+scaffold", "+fedprox"])
def test_where_all_take_equally_long_it_is_fedseqinter(term, slow):
    settings = {**PAIRS, "rounds": 5, "fraction": 0.7, "route.period": 3}
    slow()
    in_step = run(f"fedseqinter{term}", **settings)
    slow()
    race = run(f"fedasyncseq{term}", **settings)
    assert torch.equal(race.weights, in_step.weights)
    assert (race.transfers, race.bytes) == (in_step.transfers, in_step.bytes)
    assert race.client_updates == in_step.client_updates
    assert [row["accuracy"] for row in race.history] == [row["accuracy"] for row in in_step.history]


LATENCIES = {"n00": 1, "n01": 3, "n02": 7, "n03": 2, "n04": 11, "n05": 1}


@pytest.mark.parametrize("method", ["fedasyncseq", "fedasyncseq+scaffold"])
@pytest.mark.parametrize("wait", [False, True])
def test_the_ledger_is_what_was_sent(method, wait, slow, tmp_path):
    """And the fastest model defines the round, no model goes back to the group it left, and samples add up."""
    found = slow()
    found.connection.latencies = LATENCIES
    result = run(
        method, **SINGLES, rounds=8, fraction=0.5, out=tmp_path / "run", **{"route.period": 4, "route.wait": wait}
    )
    rows = 2 if "scaffold" in method else 1
    assert result.transfers["s2c"] == rows * found.connection.versions
    ledger = lines(tmp_path / "run", "ledger.jsonl")
    assert result.client_updates == sum(len(route) for line in ledger for route in line["routes"])
    done, last = Counter(), {}
    for line in ledger:
        for slot, route in zip(line["slots"], line["routes"], strict=True):
            for client in route:
                assert last.get(slot) != client
                last[slot] = client
            done[slot] += len(route)
        era = (line["round"] - 1) % 4 + 1
        assert max(done.values()) == era or (wait and era == 4)
        if line["merges"]:
            done, last = Counter(), {}
    events = lines(tmp_path / "run", "events.jsonl")
    assert {event["what"] for event in events} == (set() if wait else {"given up"})


def test_hops_in_flight_at_the_end_of_the_run_are_counted(slow, tmp_path):
    found = slow()
    found.connection.latencies = LATENCIES
    result = run(**SINGLES, rounds=3, fraction=0.5, out=tmp_path / "run", **{"route.period": 4})
    assert result.transfers["s2c"] == found.connection.versions
    assert lines(tmp_path / "run", "ledger.jsonl")[-1]["unanswered"]


def test_hops_in_flight_when_a_round_is_given_up_are_counted(slow, tmp_path):
    """The models merge at the end of a round that nobody finished; who was on the way is given up in the next one."""

    def fail_in_round_two(request, reply):
        return "no disk" if request.header["hop"][0] == 2 else reply

    found = slow(4)
    settings = {**SINGLES, "rounds": 4, "fraction": 0.5, "route.period": 2, "recovery.repeats": 0}
    run(**{**settings, "rounds": 1})
    [_, slowest] = [node for node, kind in found.connection.log if kind == "hop"]
    found.connection = SlowConnection(found.connection.services)
    found.connection.reply_faults, found.connection.latencies = (
        dict.fromkeys(found.names, fail_in_round_two),
        {slowest: 1000},
    )
    result = run(out=tmp_path / "run", **settings)
    events = lines(tmp_path / "run", "events.jsonl")
    assert "the round was given up" in {event["done"] for event in events if event["round"] == 2}
    assert {event["node"] for event in events if event["what"] == "given up"} == {slowest}
    assert result.transfers["s2c"] == found.connection.versions


def test_a_request_that_failed_before_it_was_given_up_is_counted(slow, tmp_path):
    """One node replies and one fails at the same poll: the first ends the round, before the other is asked again."""
    found = slow(4)
    settings = {**SINGLES, "rounds": 1, "fraction": 0.5, "route.period": 1}
    settings |= {"recovery.policy": "retry", "recovery.retries": 2}
    run(**settings)
    [_, second] = [node for node, kind in found.connection.log if kind == "hop"]
    found.connection = SlowConnection(found.connection.services)
    found.connection.reply_faults = {second: lambda request, reply: "no disk"}
    result = run(out=tmp_path / "run", **settings)
    assert result.transfers["s2c"] == found.connection.versions == 2
    [event] = lines(tmp_path / "run", "events.jsonl")
    assert (event["node"], event["done"]) == (second, "given up: the merge came first")


@pytest.mark.parametrize("after", [1, 2, 4])
@pytest.mark.parametrize("method", ["fedasyncseq", "fedasyncseq+scaffold"])
def test_a_killed_run_resumes(method, after, slow, tmp_path):
    """What was under way is lost and set off again; where all take equally long, the bits are the same."""
    settings = {**PAIRS, "rounds": 5, "fraction": 0.7, "route.period": 3}
    slow()
    whole = run(method, **settings)

    class Killer:
        profiling = started = stopping = lambda self, *_: None

        def on_round_end(self, context):
            if context.round == after:
                raise KeyboardInterrupt("killed")

    found = slow()
    with pytest.raises(KeyboardInterrupt):
        run(method, **settings, out=tmp_path / "run", callbacks=Killer(), checkpoint={"seconds": 0})
    found.connection = SlowConnection(found.connection.services)
    found.restart()
    resumed = fr.resume(tmp_path / "run")
    assert torch.equal(resumed.weights, whole.weights)
    assert resumed.client_updates == whole.client_updates


def test_a_group_whose_nodes_all_fail_is_passed_over(slow, tmp_path):
    found = slow()
    found.connection.offline = {"n02"}
    result = run(**SINGLES, rounds=6, fraction=0.5, out=tmp_path / "run", **{"route.period": 3})
    assert result.complete
    events = lines(tmp_path / "run", "events.jsonl")
    assert {(event["node"], event["what"], event["done"]) for event in events} == {
        ("n02", "offline", "passed over: offline")
    }
    assert all([2] not in line["routes"] for line in lines(tmp_path / "run", "ledger.jsonl"))
    assert result.transfers["s2c"] == found.connection.versions


def test_nodes_finish_their_hop_before_they_evaluate(make_nodes, use_nodes, tmp_path):
    """A node has one message at a time, and models go on while others are asked."""
    found = make_nodes(open_federation(DataSettings(name="digits", clients=6, alpha=0.3), 3), test=False)
    found.connection = SlowConnection(found.connection.services)
    share_test_samples(found)
    use_nodes(found)
    found.connection.latencies = LATENCIES
    result = run(**SINGLES, rounds=4, fraction=0.5, out=tmp_path / "run", **{"route.period": 4})
    assert [row["round"] for row in result.history] == [1, 2, 3, 4]
    assert {event["what"] for event in lines(tmp_path / "run", "events.jsonl")} <= {"given up"}
    assert result.transfers["s2c"] == found.connection.versions


def test_an_asynchronous_run_in_which_all_nodes_fail_ends(slow):
    found = slow()
    found.connection.reply_faults = dict.fromkeys(found.names, lambda request, reply: "no graphics card")
    with pytest.raises(
        fr.EngineError, match="no usable model arrived in 8 attempts in a row; most common reason: no graphics card"
    ):
        run(**SINGLES, rounds=9, fraction=0.5, **{"route.period": 3})


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("fedasyncseq", {"faults": [{"what": "dropout"}]}, "faults: cannot be simulated when real arrival times"),
        ("fedasyncseq", {"recovery.deadline": 5}, r"recovery\.deadline: cannot be simulated when real arrival times"),
        (
            "fedasyncseq+dp",
            {"terms.dp.epsilon": 9.0, "recovery.repeats": 0},
            r"terms\.dp\.epsilon: a budget cannot be kept when real arrival times",
        ),
    ],
)
def test_settings_that_need_the_plan_in_advance_are_refused(method, settings, message, slow):
    found = slow()
    with pytest.raises(fr.SpecError, match=message):
        run(method, **SINGLES, rounds=2, **settings)
    assert not found.connection.log


def test_a_request_that_was_never_sent_is_not_reported():
    """The other request was sent, so its hop is reported."""
    dispatcher, weights = Dispatcher(None, (), 1.0), torch.zeros(1)
    asked, unasked = (Request(client, None, None, None) for client in (0, 1))
    dispatcher.waiting.append(unasked)
    runner = AsyncRoundRunner(SimpleNamespace(versions=ClientStateVersions(ClientStateStore())), dispatcher)
    runner.in_flight = {
        GroupLeg(slot, slot, (slot,)): ActiveRoute(slot, (slot,), weights, {}, RoundInputs(weights), 1, request=request)
        for slot, request in enumerate((asked, unasked))
    }
    [(leg, dropped)] = runner._give_up()
    assert (leg.slot, dropped.clients, [each.attempts for each in dropped.reports]) == (0, (0,), [("failed",)])
    assert (asked.tries, list(dispatcher.waiting), runner.in_flight) == (0, [], {})
