"""The dispatcher with a scripted connection, on a simulated clock."""

from __future__ import annotations

import pytest

from fedrelay.engines.flower.messages import BadMessage, Message
from fedrelay.engines.flower.server import dispatcher as module
from fedrelay.engines.flower.server.connection_interface import NodeLost, SignOfLife, SuperLinkUnreachable
from fedrelay.engines.flower.server.dispatcher import Dispatcher, Request
from fedrelay.routes.plan import Hop

TIMEOUT = 5.0
NODES = ("a", "b", "c")
GOOD = Message({"said": "good"})
NEVER = float("inf")
POLL = 0.125  # a number that adds up without rounding


@pytest.fixture
def clock(fake_clock):
    return fake_clock(module, 100.0)


class ScriptedConnection:
    """A connection whose nodes reply after some seconds: `(2.0, GOOD)`; a third number says when they begin to."""

    def __init__(self, clock, **replies):
        self.clock, self.replies = clock, {name: list(each) for name, each in replies.items()}
        self.there, self.under_way, self.announced = set(NODES), {}, set()
        self.log, self.calls, self.broken = [], [], {}
        self.offline_until, self.reconnected, self.upload = {}, 0, 0.0
        self.alive_until = {}

    def _called(self, what):
        """Fails at those calls that are said to fail."""
        self.calls.append(what)
        if self.calls.count(what) in self.broken.get(what, ()):
            raise SuperLinkUnreachable("the SuperLink is gone")

    def online(self):
        self._called("online")
        return {name for name in self.there if self.clock.now >= self.offline_until.get(name, 0)}

    def send(self, node, message, seconds):
        self._called("send")
        if self.clock.now < self.offline_until.get(node, 0) or node not in self.there:
            return None
        self.clock.now += self.upload
        self.log.append((self.clock.now - 100.0, node, message.header["label"], seconds))
        number = str(len(self.log))
        self.under_way[number] = (self.clock.now, *self.replies[node].pop(0))
        return number

    def receive(self, ids, largest):
        self._called("receive")
        for number in ids:
            sent, whole, reply, *begins = self.under_way[number]
            if begins and number not in self.announced and self.clock.now >= sent + begins[0]:
                self.announced.add(number)
                yield number, None
            if self.clock.now >= sent + whole:
                yield number, reply

    def signs_of_life(self):
        """Nodes in `alive_until` say every second that they are at work, until then."""
        said = {name: min(end, int(self.clock.now)) for name, end in self.alive_until.items()}
        return {name: SignOfLife(self.clock.now - at, "epoch 3 of 5") for name, at in said.items()}

    def wait_for_replies(self, pause):
        self.clock.now += pause

    def reconnect(self):
        self.reconnected += 1
        self._called("reconnect")
        self.clock.now += 2.0
        self.under_way.clear()


def carried_out(connection, *wanted, tries=1, hop=None, **options):
    """What became of requests `(client, label)`, and the dispatcher that sent them."""
    outcomes = {}

    def request(client, label):
        def on_reply(reply, seconds):
            if reply.header.get("said") != "good":
                raise BadMessage("nothing good")
            outcomes[label] = seconds

        def on_failure(reason):
            outcomes[label] = reason

        return Request(client, lambda: Message({"label": label}), on_reply, on_failure, tries=tries, hop=hop)

    at_work = Dispatcher(connection, NODES, TIMEOUT, POLL, **options)
    over = list(at_work.run([request(*each) for each in wanted]))
    assert len(over) == len(wanted)
    return outcomes, at_work


def test_a_node_has_one_message_at_a_time_and_others_do_not_wait(clock):
    connection = ScriptedConnection(clock, a=[(2.0, GOOD), (1.0, GOOD)], b=[(4.0, GOOD)])
    outcomes, _ = carried_out(connection, (0, "first"), (0, "second"), (1, "other"))
    assert [(node, label) for _, node, label, _ in connection.log] == [
        ("a", "first"),
        ("b", "other"),
        ("a", "second"),
    ]
    assert [seconds for seconds, *_ in connection.log] == [0.0, 0.0, 2.0]
    assert outcomes == {"first": 2.0, "second": 1.0, "other": 4.0}


def test_a_request_may_return_the_next_one(clock):
    connection, heard = ScriptedConnection(clock, a=[(1.0, GOOD)], b=[(1.0, "failed: no disk")], c=[(1.0, GOOD)]), []

    def hop(client):
        def then(*_):
            heard.append(client)
            return hop(client + 1) if client < 2 else None

        return Request(client, lambda: Message({"label": client}), then, then)

    assert [request.client for request in Dispatcher(connection, NODES, TIMEOUT).run([hop(0)])] == [0, 1, 2]
    assert heard == [0, 1, 2]


@pytest.mark.parametrize(
    ("replies", "tries", "outcome"),
    [
        ([(1.0, "failed: no disk"), (1.0, GOOD)], 2, 1.0),
        ([(1.0, "failed: no disk"), (1.0, "failed: no card")], 2, "failed: no card"),
        ([(1.0, Message({}))], 1, "bad reply: nothing good"),
        ([(NEVER, GOOD)], 1, "no reply in 5 s"),
        ([(NEVER, GOOD), (4.5, GOOD)], 2, 4.5),
        ([(9.0, GOOD, 4.0)], 1, 9.0),  # it began to come in time
        ([(6.0, GOOD)], 1, "no reply in 5 s"),
        ([(9.0, "incomplete reply: nothing more of it came", 4.0)], 1, "incomplete reply: nothing more of it came"),
    ],
)
def test_replies_and_reasons(replies, tries, outcome, clock):
    outcomes, _ = carried_out(ScriptedConnection(clock, a=replies), (0, "it"), tries=tries)
    assert outcomes == {"it": outcome}


@pytest.mark.parametrize(
    ("alive", "takes", "outcome", "ends"),
    [
        (7200.0, 7000.0, 7000.0, 7000.0),  # hours, and the time-out is five seconds
        (60.0, 7000.0, "no reply in 5 s", 65.0),  # it stops to say anything after a minute
        (0.0, 4.0, 4.0, 4.0),  # what was said about an earlier hop does not count
        (0.0, 6.0, "no reply in 5 s", 5.0),
    ],
)
def test_a_node_that_shows_that_it_works_may_take_any_time(alive, takes, outcome, ends, clock, caplog):
    connection = ScriptedConnection(clock, a=[(takes, GOOD)])
    connection.alive_until["a"] = 100.0 + alive
    outcomes, _ = carried_out(connection, (0, "it"), hop=Hop(1, 0, 0, 0))
    assert outcomes == {"it": outcome}
    assert clock.now - 100.0 == pytest.approx(ends, abs=2 * POLL)
    assert ("node 'a' is still training: epoch 3 of 5" in caplog.text) == (ends > 5)


def test_other_requests_than_hops_have_a_fixed_time(clock):
    connection = ScriptedConnection(clock, a=[(7.0, GOOD)])
    connection.alive_until["a"] = 200.0
    assert carried_out(connection, (0, "it"))[0] == {"it": "no reply in 5 s"}


@pytest.mark.parametrize(
    ("alive", "back", "outcome"),
    [(3.0, 6.0, 2.0), (3.0, 99.0, "offline"), (0.0, 6.0, "offline: no heartbeat")],
)
def test_a_hop_that_is_lost_with_its_node_is_sent_again_when_the_node_is_back(alive, back, outcome, clock):
    """It goes on where it was. One that never said that it had begun is not waited for."""
    connection = ScriptedConnection(clock, a=[(4.0, NodeLost("offline: no heartbeat")), (2.0, GOOD)])
    connection.alive_until["a"] = 100.0 + alive
    receive = connection.receive

    def received(ids, largest):
        for number, reply in receive(ids, largest):
            if isinstance(reply, NodeLost):
                connection.offline_until["a"] = 100.0 + back
            yield number, reply

    connection.receive = received
    outcomes, _ = carried_out(connection, (0, "it"), hop=Hop(1, 0, 0, 0))
    assert outcomes == {"it": outcome}
    assert clock.now - 100.0 < 9.0


def test_an_offline_node_is_not_waited_for(clock):
    connection = ScriptedConnection(clock, a=[(1.0, GOOD)])
    connection.there = {"a"}
    outcomes, _ = carried_out(connection, (1, "absent"), (0, "online"))
    assert outcomes == {"absent": "offline", "online": 1.0}


@pytest.mark.parametrize(("what", "when"), [("receive", 3), ("online", 2), ("send", 2)])
def test_requests_in_flight_are_sent_again_when_the_connection_is_back(what, when, clock, caplog):
    connection = ScriptedConnection(clock, a=[(4.0, GOOD), (4.0, GOOD)], b=[(4.0, GOOD), (4.0, GOOD)])
    connection.broken = {what: [when]}
    outcomes, at_work = carried_out(connection, (0, "first"), (1, "second"))
    assert outcomes == {"first": 4.0, "second": 4.0}  # and no try was used up
    lost = 2 if what == "receive" else 1
    [said] = at_work.interruptions
    assert said == f"the SuperLink is gone; back after 2 s, requests sent again: {lost}"
    assert [record.getMessage() for record in caplog.records] == ["the SuperLink is gone; waiting for it", said]
    assert [(node, label, seconds) for _, node, label, seconds in connection.log[-2:]] == [
        ("a", "first", 10.0),  # its node may have to finish the first asking before
        ("b", "second", 10.0 if lost == 2 else 5.0),
    ]


@pytest.mark.parametrize(("returns", "outcome"), [(4.0, 1.0), (9.0, "offline")])
def test_a_node_may_come_back_later_than_the_connection(returns, outcome, clock):
    """Who was at work when the SuperLink died notices when the work is done."""
    connection = ScriptedConnection(clock, a=[(4.0, GOOD), (1.0, GOOD)])
    connection.broken, reconnect = {"receive": [2]}, connection.reconnect

    def then_away():
        reconnect()
        connection.offline_until["a"] = clock.now + returns

    connection.reconnect = then_away
    outcomes, _ = carried_out(connection, (0, "it"))
    assert outcomes == {"it": outcome}
    assert clock.now - 100.0 < 2.3 + 5.0 + 1.2


def test_a_connection_that_fails_again_and_again_is_given_up(clock):
    """A SuperLink that lets us in and then answers nothing but errors."""
    connection = ScriptedConnection(clock, a=[(4.0, GOOD)] * 99)
    connection.broken = {"receive": range(1, 99)}
    with pytest.raises(
        SuperLinkUnreachable, match=r"^the SuperLink is gone; it failed \d+ times without a reply between them$"
    ):
        carried_out(connection, (0, "it"), wait=20.0)
    assert clock.now - 100.0 == pytest.approx(20.0, abs=4.0)
    assert connection.reconnected < 12


def test_rare_failures_do_not_add_up(clock):
    connection = ScriptedConnection(clock, a=[(4.0, GOOD)] * 99)
    connection.broken = {"receive": range(20, 400, 60)}
    outcomes, at_work = carried_out(connection, *((0, number) for number in range(6)), wait=1.0)
    assert list(outcomes.values()) == [4.0] * 6
    assert len(at_work.interruptions) >= 4


def test_a_connection_that_does_not_come_back_ends_it(clock):
    connection = ScriptedConnection(clock, a=[(4.0, GOOD)])
    connection.broken = {"receive": [1], "reconnect": [1]}
    with pytest.raises(SuperLinkUnreachable, match="the SuperLink is gone"):
        carried_out(connection, (0, "it"))


@pytest.mark.parametrize(("tries", "outcome"), [(1, "offline"), (2, "offline"), (3, 1.0)])
def test_a_node_that_is_offline_for_a_moment_is_tried_again_later(tries, outcome, clock):
    """Tries are not used up at once: a node that registers anew is offline until it has."""
    connection = ScriptedConnection(clock, a=[(1.0, GOOD)])
    connection.offline_until["a"] = clock.now + 1.5 * module.OFFLINE_POLLS * POLL
    outcomes, _ = carried_out(connection, (0, "it"), tries=tries)
    assert outcomes == {"it": outcome}


def test_online_nodes_after_a_failure_of_the_connection(clock):
    connection = ScriptedConnection(clock)
    connection.broken = {"online": [1]}
    at_work = Dispatcher(connection, NODES, TIMEOUT)
    assert at_work.online() == set(NODES)
    assert at_work.interruptions == ["the SuperLink is gone; back after 2 s, requests sent again: 0"]


def test_a_cancelled_request_is_not_sent_again(clock):
    """Its node stays busy until it has replied, or until the connection has lost the request."""
    connection, heard = ScriptedConnection(clock, a=[(4.0, GOOD)] * 2, b=[(1.0, GOOD)] * 2), []
    connection.broken = {"receive": [4]}
    at_work = Dispatcher(connection, NODES, TIMEOUT, POLL)

    def request(client, label):
        return Request(client, lambda: Message({"label": label}), lambda *_: heard.append(label), heard.append)

    unwanted = request(0, "unwanted")
    at_work.waiting.append(unwanted)
    at_work.poll_once()
    unwanted.tries = 0
    list(at_work.run([request(0, "next"), request(1, "other")]))
    assert sorted(heard) == ["next", "other"]
    assert [label for _, _, label, _ in connection.log] == ["unwanted", "other", "other", "next"]
    assert at_work.interruptions[0].endswith("requests sent again: 1")


def test_replies_are_polled_between_large_requests(clock):
    connection = ScriptedConnection(clock, a=[(1.0, GOOD)], b=[(1.0, GOOD)], c=[(1.0, GOOD)])
    connection.upload = 3.0
    outcomes, _ = carried_out(connection, (0, "first"), (1, "second"), (2, "third"))
    assert [call for call in connection.calls if call != "online"][:4] == ["send", "receive", "send", "receive"]
    assert outcomes == {"first": 3.0 + POLL, "second": 3.0, "third": 1.0}  # and not six more
