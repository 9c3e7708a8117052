"""Registration: facts are checked, and nodes that do not fit are refused."""

from __future__ import annotations

import json
from importlib.metadata import version

import pytest
from pydantic import ValidationError

from fedrelay.engines.flower.messages import Message
from fedrelay.engines.flower.node_facts import parse_facts
from fedrelay.engines.flower.server.node_registration import KNOWN, list_nodes, misfit, register_nodes
from fedrelay.errors import EngineError

OWN = version("fedrelay")
KINDS = {"shape": [4], "kind": "tabular", "fingerprint": "f"}


def header(classes=10, said=OWN, plugins=()):
    return {"samples": 5, "tests": 0, "classes": classes, **KINDS, "version": said, "plugins": list(plugins)}


def facts(classes=10, said=OWN, plugins=()):
    return parse_facts(header(classes, said, plugins))


class Replies:
    """A connection whose nodes reply at once; a node without a header is offline."""

    def __init__(self, **headers):
        self.headers, self.sent = headers, []

    def online(self):
        return set(self.headers)

    def send(self, node, message, seconds):
        assert message.header == {"kind": "describe"}
        self.sent.append(node)
        return node if node in self.headers else None

    def receive(self, ids, largest):
        yield from ((node, Message(self.headers[node])) for node in ids)

    def close(self):
        self.closed = True


@pytest.mark.parametrize(("said", "shown"), [("9.9.1", "9.9.1"), ("0.999.0", "0.999.0"), ("", "an unknown version")])
def test_another_version_does_not_fit(said, shown):
    assert (
        misfit(facts(said=said)) == f"it runs FedRelay {shown}, the server runs {OWN}; install the same version on both"
    )
    assert misfit(facts(said="new\x1b[31m")).isprintable()


def test_the_same_minor_version_fits():
    assert misfit(facts()) == misfit(facts(said=f"{OWN.rsplit('.', 1)[0]}.99")) == ""


def test_plug_ins_must_be_allowed_by_the_node():
    assert misfit(facts(plugins=["lab.pairs", "lab.more"]), ["lab.pairs"]) == ""
    assert misfit(facts(plugins=["lab.more"]), ["lab.pairs", "lab.more"]) == (
        "the server needs plug-ins lab.more, lab.pairs, the node allows lab.more; "
        "start the node with --plugin lab.pairs"
    )
    assert "the node allows none" in misfit(facts(), ["lab.pairs"])


def test_a_node_that_does_not_fit_is_refused_when_it_registers(tmp_path):
    connection = Replies(a=header(), b=header(said="9.9.1"))
    with pytest.raises(EngineError, match=rf"node 'b' is refused: it runs FedRelay 9\.9\.1, the server runs {OWN};"):
        register_nodes(connection, ("a", "b"), tmp_path, 0.0)
    with pytest.raises(EngineError, match=r"node 'a' is refused: the server needs plug-ins lab, the node allows none"):
        register_nodes(Replies(a=header()), ("a",), tmp_path, 0.0, ["lab"])
    assert not (tmp_path / KNOWN).exists()


def test_a_node_that_has_left_is_not_asked(tmp_path):
    with pytest.raises(EngineError, match="withdrawn: unknown node 'b'"):
        register_nodes(Replies(a=header()), ("a", "b"), tmp_path, 0.0, withdrawn=["b"])
    register_nodes(Replies(a=header(), b=header(7)), ("a", "b"), tmp_path, 0.0)
    connection = Replies(a=header(9), b=header(8))
    found = register_nodes(connection, ("a", "b"), tmp_path, 60.0, withdrawn=["b"]).facts
    assert connection.sent == ["a"]
    assert (found["a"].classes, found["b"].classes) == (9, 7)


def test_facts_of_an_offline_node_are_those_it_sent_last(tmp_path, caplog):
    with pytest.raises(EngineError, match=r"node 'b' has never registered \(offline\); start it, or remove its key"):
        register_nodes(Replies(a=header()), ("a", "b"), tmp_path, 0.0)
    register_nodes(Replies(a=header(), b=header(7)), ("a", "b"), tmp_path, 0.0)
    assert json.loads((tmp_path / KNOWN / "b.json").read_text())["classes"] == 7
    found = register_nodes(Replies(a=header(9)), ("a", "b"), tmp_path, 0.0).facts
    assert (found["a"].classes, found["b"].classes) == (9, 7)
    assert "node 'b' is not available (offline); it joins when it is back" in caplog.text


def test_the_list_names_the_state_of_every_node(tmp_path):
    connection = Replies(a=header(), b=header(said="9.9.1"), c={**header(), "samples": -1})
    found = list_nodes(connection, ("a", "b", "c", "d"), tmp_path, 1.0, {"a": 2.0})
    assert [entry.status.split(":")[0] for entry in found] == ["ready", "refused", "its facts are invalid", "offline"]
    assert [entry.seen for entry in found] == [2.0, None, None, None]
    assert found[0].to_json()["plugins"] == []
    assert connection.closed


def test_class_counts_that_were_withdrawn_are_not_used_when_the_node_is_away(tmp_path):
    sharing = header(2) | {"histogram": [3, 2]}
    register_nodes(Replies(a=sharing, b=sharing), ("a", "b"), tmp_path, 0.0)
    list_nodes(Replies(a=header(2)), ("a", "b"), tmp_path, 1.0, {})
    known = register_nodes(Replies(), ("a", "b"), tmp_path, 0.0).facts
    assert (known["a"].histogram, known["b"].histogram) == (None, (3, 2))
    assert (known["a"].samples, known["a"].classes) == (5, 2)
    list_nodes(Replies(b=header(2) | {"histogram": [4, 1], "histogram_epsilon": 1.0}), ("a", "b"), tmp_path, 1.0, {})
    assert register_nodes(Replies(), ("a", "b"), tmp_path, 0.0).facts["b"].histogram is None  # now with noise


def test_impossible_facts_are_refused():
    with pytest.raises(ValidationError):
        facts(100_001)
