"""What is odd about nodes is said before it does harm."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from pydantic import ValidationError

from fedrelay.engines.flower.server.node_warnings import highest, node_warnings
from fedrelay.engines.flower.server.remote_federation import facts_from

OWN = version("fedrelay")


def facts(classes=10, said=OWN):
    kinds = {"shape": [4], "kind": "tabular", "sequence": False, "fingerprint": "f"}
    return facts_from({"samples": 5, "tests": 0, "classes": classes, **kinds, "version": said})


def test_nothing_is_odd_about_nodes_that_are_alike():
    patch = f"{OWN.rsplit('.', 1)[0]}.99"
    assert list(node_warnings({"a": facts(10), "b": facts(3, patch), "c": facts(20)})) == []
    assert list(node_warnings({"a": facts(100)})) == []


def test_a_label_far_from_all_others_is_seen():
    [line] = node_warnings({"a": facts(10), "b": facts(4097), "c": facts(9)})
    assert line.startswith("node 'b' has 4,097 classes, all others at most 10: the model gets 4,097 because of it.")
    assert highest({"a": facts(10), "b": facts(4097), "c": facts(9)}) == ("b", 4097, 10)


@pytest.mark.parametrize("said", ["9.9.1", "0.999.0", "", "new\x1b[31m"])
def test_another_version_is_said(said):
    [line] = node_warnings({"a": facts(), "b": facts(said=said)})
    assert line.startswith("node 'b' has FedRelay ")
    assert line.isprintable()


def test_absurd_numbers_of_classes_are_no_facts():
    with pytest.raises(ValidationError):
        facts(100_001)
