"""What knows Flower from inside, without a SuperLink: mail, its limits, and what is made of a SuperLink's failures."""

# ruff: noqa: N802  # the methods of stand-ins are called what Flower calls them

from __future__ import annotations

import io
import json
import threading
import time
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_body,
    get_object_id,
    get_object_tree,
)

from fedrelay.engines.flower.parcel import Parcel
from fedrelay.engines.flower.post import Unreachable
from fedrelay.engines.flower.wire import mail, server, session
from fedrelay.engines.flower.wire.mail import Incomplete, as_message, as_parcel, fetch, numbered
from fedrelay.engines.flower.wire.server import FlowerPost
from fedrelay.engines.flower.wire.session import Session, Taken

ME = Node(node_id=1)
LARGEST = 10**6

REQUEST = httpx.Request("POST", "https://link")
CUT = httpx.ConnectError("cut")


def status(code):
    return httpx.HTTPStatusError("", request=REQUEST, response=httpx.Response(code, text="no", request=REQUEST))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(mail, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(mail, "LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(server, "LOOK", 0.0)


def letter(content, reply_to=""):
    """A message with this content, as it lies at a SuperLink."""
    about = session.Metadata(7, "", 5, 1, reply_to, "", time.time(), 60.0, "query")
    about.delivered_at = ""
    whole = {"error": content} if isinstance(content, Error) else {"content": content}
    return numbered(session.make_message(about, **whole))


def parcel(size=1000):
    return Parcel({"kind": "turn"}, {"models": np.arange(size, dtype=np.float32).reshape(1, -1)})


# --- parcels and messages


@settings(max_examples=30)
@given(
    st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers())),
    st.dictionaries(st.text(min_size=1), st.tuples(st.sampled_from(["f4", "f8", "i8"]), st.integers(0, 5))),
)
def test_a_parcel_comes_back_as_it_was(header, shapes):
    arrays = {name: np.arange(2 * size, dtype=kind).reshape(2, size) for name, (kind, size) in shapes.items()}
    found = as_parcel(letter(as_message(Parcel(header, arrays))))
    assert found.header == header
    assert {name: (array.dtype, array.tolist()) for name, array in found.arrays.items()} == {
        name: (array.dtype, array.tolist()) for name, array in arrays.items()
    }


def bytes_of(save):
    file = io.BytesIO()
    save(file)
    return Array("float32", (1,), "numpy.ndarray", file.getvalue())


@pytest.mark.parametrize(
    ("text", "arrays", "reason"),
    [
        ("[1]", {}, "the header is no mapping"),
        ("{", {}, "property name"),
        ("{}", {"models": bytes_of(lambda file: np.save(file, np.array([{}]), allow_pickle=True))}, "allow_pickle"),
        ("{}", {"models": bytes_of(lambda file: np.savez(file, x=np.zeros(1)))}, "something that is no array"),
        ("{}", {"models": Array("float32", (1,), "numpy.ndarray", b"garbage")}, "allow_pickle"),
        ("{}", {name: Array(np.zeros(10**5, np.float32)) for name in "abc"}, "more than 1000000 bytes"),
    ],
    ids=["no mapping", "no JSON", "pickled", "an archive", "garbage", "too large together"],
)
def test_other_forms_are_refused(text, arrays, reason):
    content = RecordDict({"header": ConfigRecord({"json": text}), "arrays": ArrayRecord(arrays)})
    with pytest.raises(ValueError, match=reason):
        as_parcel(letter(content), LARGEST)


# --- parts of a message


class Shelf:
    """The parts of messages at a SuperLink; `look` is called with the number of looks before one is handed out."""

    def __init__(self, *messages, look=lambda looks: True):
        self.parts = {name: part.deflate() for each in messages for name, part in get_all_nested_objects(each).items()}
        self.look, self.looks, self.confirmed, self.lock = look, 0, [], threading.Lock()

    def PullObject(self, request):
        with self.lock:
            self.looks += 1
            content = self.parts.get(request.object_id)
            there = content is not None and self.look(self.looks)
        return SimpleNamespace(object_found=content is not None, object_available=there, object_content=content)

    def ConfirmMessageReceived(self, request):
        self.confirmed.append(request.message_object_id)


def fetched(shelf, message, largest=LARGEST, longest=60.0):
    return fetch(shelf, ME, 7, get_object_tree(message), largest, longest)


def test_all_parts_come():
    message = letter(as_message(parcel()))
    shelf = Shelf(message)
    assert as_parcel(fetched(shelf, message)).arrays["models"].sum() == 499500
    assert shelf.looks == len(shelf.parts) == 6
    assert shelf.confirmed == [message.metadata.message_id]


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until somebody moves it."""
    found = SimpleNamespace(now=0.0)

    def sleep(seconds):
        found.now += seconds

    monkeypatch.setattr(mail, "time", SimpleNamespace(monotonic=lambda: found.now, sleep=sleep))
    return found


def test_a_slow_upload_is_waited_for_as_long_as_parts_come(clock):
    """Far longer altogether than a single part is waited for."""

    def look(looks):
        clock.now += 9.0
        return looks % 3 == 0

    message = letter(as_message(parcel()))
    assert as_parcel(fetched(Shelf(message, look=look), message)).header == {"kind": "turn"}
    assert clock.now > 4 * mail.PATIENCE


def test_an_upload_that_stops_is_given_up(clock):
    def look(looks):
        clock.now += 9.0
        return looks < 4

    message = letter(as_message(parcel()))
    with pytest.raises(Incomplete, match="nothing more of it came in 30 s"):
        fetched(Shelf(message, look=look), message)
    assert clock.now < 3 * mail.PATIENCE


def test_an_upload_that_takes_too_long_altogether_is_given_up():
    message = letter(as_message(parcel()))
    with pytest.raises(Incomplete, match=r"not all of it came in 0\.02 s"):
        fetched(Shelf(message, look=lambda looks: False), message, longest=0.02)


def test_a_part_that_is_lost_is_not_waited_for():
    message = letter(as_message(parcel()))
    shelf = Shelf(message)
    shelf.parts.popitem()
    with pytest.raises(Incomplete, match="a part of it is lost"):
        fetched(shelf, message)


@pytest.mark.parametrize(
    ("content", "largest", "reason"),
    [(as_message(parcel(1000)), 3999, "more than 3999 bytes"), (as_message(Parcel({})), 100, "more than 100 bytes")],
)
def test_too_many_bytes(content, largest, reason):
    with pytest.raises(ValueError, match=reason):
        fetched(Shelf(letter(content)), letter(content), largest)


def test_too_many_parts():
    """They are counted before any is asked for."""
    shelf, tree = Shelf(), ObjectTree(object_id="x", children=[ObjectTree(object_id="y")] * 65)
    with pytest.raises(ValueError, match="too many parts"):
        fetch(shelf, ME, 7, tree, LARGEST - 1)
    assert shelf.looks == 0


def test_a_piece_that_is_named_many_times_counts_as_often():
    """A few bytes that would unfold to gigabytes."""
    array = Array(np.zeros(100, np.float32))
    [piece, whole] = get_all_nested_objects(array).values()
    body = {**json.loads(get_object_body(whole.deflate(), Array)), "arraychunk_ids": [0] * 10_000}
    text = json.dumps(body).encode()
    content = f"Array {piece.object_id} {len(text)}".encode() + b"\x00" + text
    shelf, name = Shelf(), get_object_id(content)
    shelf.parts = {piece.object_id: piece.deflate(), name: content}
    with pytest.raises(ValueError, match="more than 1000000 bytes"):
        fetch(shelf, ME, 7, ObjectTree(object_id=name, children=[ObjectTree(object_id=piece.object_id)]), LARGEST)


def test_something_that_is_no_message():
    content = as_message(parcel())
    with pytest.raises(ValueError, match="it is no message"):
        fetched(Shelf(content), content)


def test_a_moment_without_network_costs_nothing(clock):
    message, failures = letter(as_message(parcel())), Counter()

    def look(looks):
        failures["all"] += looks < 4
        if looks < 4:
            raise CUT
        return True

    shelf = Shelf(message, look=look)
    shelf.ConfirmMessageReceived = lambda request: look(0)  # that it arrived need not be known
    assert as_parcel(fetched(shelf, message)).header == {"kind": "turn"}
    assert failures["all"] == 4


def test_a_network_that_stays_away_is_said(clock):
    def look(looks):
        clock.now += 2.0
        raise CUT

    message = letter(as_message(parcel()))
    with pytest.raises(httpx.ConnectError):
        fetched(Shelf(message, look=look), message)
    assert clock.now <= mail.BLIP + 4.0


@pytest.mark.parametrize(("failures", "arrives"), [(3, True), (10**6, False)])
def test_parts_are_sent_again_for_a_moment(failures, arrives, clock, monkeypatch):
    monkeypatch.setattr(mail, "LONGEST_PAUSE", 1.0)
    message, tried, stored = letter(as_message(parcel())), Counter(), set()

    def store(request):
        tried[request.object_id] += 1
        if tried[request.object_id] <= failures:
            raise CUT
        stored.add(request.object_id)
        return SimpleNamespace(stored=True)

    part = get_object_tree(message).object_id
    with nullcontext() if arrives else pytest.raises(httpx.ConnectError):
        mail.push(SimpleNamespace(PushObject=store), ME, 7, "session", message, {part})
    assert (stored, clock.now) == (({part}, 3.0) if arrives else (set(), 6.0))


# --- the server's side


class FakeLink:
    """What of a SuperLink the server's side sees: nodes 'a' and 'b', who have answered already if `answers` says so."""

    def __init__(self, answers=()):
        self.answers, self.shelf = {}, Shelf()
        for number, content in dict(answers).items():
            message = letter(content, reply_to=number)
            self.answers[number] = message
            self.shelf.parts |= Shelf(message).parts
        self.PullObject, self.ConfirmMessageReceived = self.shelf.PullObject, self.shelf.ConfirmMessageReceived
        self.asked, self.lives = [], []

    def GetNodes(self, request):
        return SimpleNamespace(nodes=[SimpleNamespace(public_key=name, node_id=ord(name)) for name in "ab"])

    def PushMessages(self, request):
        [message] = request.messages_list
        self.lives.append(message.metadata.ttl)
        number = chr(message.metadata.dst_node_id)
        return SimpleNamespace(message_ids=[number], objects_to_push=["none"], session_id="s")

    def PushObject(self, request):
        return SimpleNamespace(stored=True)

    def PullMessages(self, request):
        self.asked.append(list(request.message_ids))
        found = [self.answers[number] for number in request.message_ids if number in self.answers]
        about = [SimpleNamespace(metadata=each.metadata) for each in found]
        return SimpleNamespace(messages_list=about, message_object_trees=[get_object_tree(each) for each in found])


class FakeSession(Session):
    """A session at a fake SuperLink; `troubles` keep it from being opened, one after the other."""

    links: list[FakeLink]
    troubles: list[Exception]
    closed: list[bool]

    def __init__(self, address, authority, secret):
        if self.troubles:
            raise self.troubles.pop(0)
        self.run, self.task, self.node, self.stub = 7, 8, ME, self.links[0]
        if len(self.links) > 1:
            self.links.pop(0)

    def others(self):
        return 0

    def close(self, *, well):
        self.closed.append(well)


@pytest.fixture
def office(monkeypatch):
    """Posts at fake SuperLinks, which come one after the other."""
    posts = []

    def make(*links, troubles=(), wait=60.0):
        FakeSession.links, FakeSession.troubles, FakeSession.closed = list(links), list(troubles), []
        monkeypatch.setattr(server, "Session", FakeSession)
        posts.append(FlowerPost("link:1", b"", b"", {}, wait=wait))
        posts[-1].names = {"a": "a", "b": "b"}
        return posts[-1]

    yield make
    for post in posts:
        post.close()


def test_a_slow_answer_does_not_keep_others_waiting(office):
    link = FakeLink({"a": as_message(parcel(1000)), "b": as_message(Parcel({"kind": "who"}))})
    slow, released = set(Shelf(link.answers["a"]).parts), threading.Event()
    pull = link.PullObject

    def held_up(request):
        if request.object_id in slow and not released.is_set():
            return SimpleNamespace(object_found=True, object_available=False)
        return pull(request)

    link.PullObject = held_up
    post = office(link)
    numbers = [post.send(name, Parcel({}), 60.0) for name in "ab"]
    assert dict(post.collect(numbers, LARGEST)) == {"a": None, "b": Parcel({"kind": "who"})}
    assert list(post.collect(["a"], LARGEST)) == []
    released.set()
    [(number, answer)] = until_some(lambda: post.collect(["a"], LARGEST))
    assert (number, answer.bytes) == ("a", 4000)
    assert link.asked == [["a", "b"]]  # what is on its way is not asked for again: the SuperLink has handed it out


def until_some(look):
    """What a look finds at last."""
    for _ in range(100):
        if found := list(look()):
            return found
    raise AssertionError("nothing came")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (Error(code=101, reason="the disk\nis full"), "failed: the disk is full"),
        (Error(code=3, reason="Error: Message Unavailable"), "no answer in 6 s"),
        (Error(code=4, reason="Error: Reply Message Unavailable"), "no answer in 6 s"),
        (Error(code=5, reason="Error: Node Unavailable"), "gone: no sign of life for 20 s"),
        (Error(code=8), "failed: error 8 of Flower"),
        (RecordDict(), "a bad answer: cannot be read (KeyError: 'header')"),
        (as_message(parcel(10**6)), "a bad answer: cannot be read (TooLarge: more than 1000000 bytes)"),
    ],
)
def test_reasons_are_one_line_in_plain_words(content, words, office):
    post = office(FakeLink({"a": content}))
    assert post.send("a", Parcel({}), 6.0) == "a"
    found = list(post.collect(["a"], LARGEST))
    assert found[0] == ("a", None)
    assert (found[1:] or until_some(lambda: post.collect(["a"], LARGEST))) == [("a", words)]


def test_a_question_lives_longer_than_its_answer_is_waited_for(office):
    post = office(FakeLink())
    post.send("a", parcel(25 * 10**5), 6.0)
    assert post.session.stub.lives == [6.0 + 10.0 + 2.0]
    assert post.send("c", parcel(), 6.0) is None


@pytest.mark.parametrize("method", ["GetNodes", "PushMessages", "PullMessages", "PullObject"])
@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (CUT, "the SuperLink at link:1 cannot be reached (ConnectError: cut)"),
        (status(401), "the SuperLink at link:1 does not know this run any more (status 401: no)"),
        (status(413), "the SuperLink at link:1 refuses what it is asked (status 413: no)"),
        (status(502), "the SuperLink at link:1 fails (status 502: no)"),
    ],
)
def test_every_failure_on_the_way_is_the_posts_and_not_the_nodes(method, trouble, words, office, monkeypatch):
    monkeypatch.setattr(mail, "BLIP", 0.0)

    def fail(request):
        raise trouble

    def all_of_it():
        post.present()
        post.send("a", Parcel({}), 6.0)
        until_some(lambda: [each for each in post.collect(["a"], LARGEST) if each[1] is not None])

    links = [FakeLink({"a": as_message(parcel())}) for _ in range(2)]
    setattr(links[0], method, fail)
    post = office(*links)
    with pytest.raises(Unreachable) as caught:
        all_of_it()
    assert str(caught.value) == words
    post.reconnect()
    assert FakeSession.closed == [False]  # the lost one was closed
    all_of_it()


@pytest.mark.parametrize(
    ("troubles", "wait", "words"),
    [
        ([status(401)], 60.0, "link:1 does not accept the secret of the folder (status 401: no)"),
        ([status(403)], 60.0, "link:1 refuses what it is asked (status 403: no)"),
        ([httpx.ConnectError("CERTIFICATE_VERIFY_FAILED")], 60.0, "CERTIFICATE_VERIFY_FAILED"),
        ([status(503)] * 2, 0.0, "link:1 fails (status 503: no)"),
        ([CUT] * 2, 0.0, "link:1 cannot be reached (ConnectError: cut)"),
        ([Taken()] * 2, 0.0, "gives our runs to somebody else; it serves one `fedrelay run` at a time"),
        ([CUT, status(503), Taken()], 60.0, None),
    ],
)
def test_what_waiting_may_cure_is_waited_for(troubles, wait, words, office):
    if words is None:
        assert office(FakeLink(), troubles=troubles, wait=wait).present() == {"a", "b"}
        return
    with pytest.raises(Unreachable) as caught:
        office(FakeLink(), troubles=troubles, wait=wait)
    assert words in str(caught.value)


# --- whose run it is


class FakeOffice:
    """Starts run 7, and gives away the runs in `waiting`, oldest first."""

    def __init__(self, waiting=(), trouble=None):
        self.waiting, self.trouble, self.log = list(waiting), trouble, []

    def made(self, kind, address, authority, component, *more):
        token = getattr(more[-1], "_token", "") if more else ""
        return FakeClient(self, token)


class FakeClient:
    def __init__(self, office, token=""):
        self.office, self.token = office, token

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Nothing to do."""

    def StartRun(self, request):
        self.office.log.append("start 7")
        return SimpleNamespace(run_id=7)

    def StopRun(self, request):
        self.office.log.append(f"stop {request.run_id}")

    def ListRuns(self, request):
        runs = self.office.runs.items()
        return SimpleNamespace(run_dict={run: SimpleNamespace(status=SimpleNamespace(status=now)) for run, now in runs})

    def AcquireTask(self, request):
        if self.office.trouble is not None:
            raise self.office.trouble
        run = self.office.waiting.pop(0) if self.office.waiting else 0
        return SimpleNamespace(task=SimpleNamespace(run_id=run), token=f"token {run}" if run else "")

    def PullTaskInput(self, request):
        self.office.log.append(f"begin with {self.token}")
        return SimpleNamespace(task_id=70, context=SimpleNamespace(node_id=1))

    def PushTaskOutput(self, request):
        self.office.log.append(f"{request.sub_status} with {self.token}")


@pytest.fixture
def opened(monkeypatch):
    sessions = []

    def make(found):
        monkeypatch.setattr(session, "client", found.made)
        monkeypatch.setattr(session, "control", lambda address, authority: FakeClient(found))
        sessions.append(Session("link:1", b"", b"secret"))
        return sessions[-1]

    yield make
    for each in sessions:
        each.over.set()


def test_a_run_of_somebody_else_that_is_in_the_way_is_ended(opened, caplog):
    found = FakeOffice(waiting=[5, 7])
    assert opened(found).run == 7
    assert found.log == ["start 7", "failed with token 5", "begin with token 7"]
    assert "had a run of somebody else waiting" in caplog.text


def test_a_run_that_somebody_else_took_is_noticed(opened):
    found = FakeOffice(waiting=[5])
    with pytest.raises(Taken):
        opened(found)
    assert found.log == ["start 7", "failed with token 5"]


def test_a_run_that_cannot_be_claimed_is_not_left_behind(opened):
    found = FakeOffice(trouble=status(401))
    with pytest.raises(httpx.HTTPStatusError):
        opened(found)
    assert found.log == ["start 7", "stop 7"]


def test_other_runs_under_way_are_counted(opened):
    found = FakeOffice(waiting=[7])
    found.runs = {3: "finished", 4: "running", 5: "starting", 6: "pending", 7: "running"}
    assert opened(found).others() == 2


def test_messages_name_their_run_themselves(opened):
    """Nothing is taken from what Flower keeps for the whole process: there may be several sessions."""
    message = opened(FakeOffice(waiting=[7])).message(as_message(parcel()), 5, 6.0)
    about = message.metadata
    assert isinstance(message, Message)
    assert (about.run_id, about.src_node_id, about.dst_node_id, about.src_task_id, about.ttl) == (7, 1, 5, 70, 6.0)
    assert about.message_id == message.object_id
