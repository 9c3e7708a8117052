"""Claims of nodes: what is agreed holds, what nobody could have is refused, and what is unusual is remarked."""

from __future__ import annotations

import json
from importlib.metadata import version

import pytest

from fedrelay.engines.flower.messages import Message
from fedrelay.engines.flower.node_facts import parse_facts
from fedrelay.engines.flower.roster import ROSTER, AgreedNumbers, Roster, read_roster_file
from fedrelay.engines.flower.server.claims import refused_claims, unusual_claims
from fedrelay.engines.flower.server.node_registration import list_nodes, register_nodes
from fedrelay.errors import EngineError, SpecError

NAMES = ("a", "b", "c")


def header(samples=400, classes=10, **more):
    facts = {"samples": samples, "tests": 0, "classes": classes, "shape": [4], "kind": "tabular", "fingerprint": "f"}
    return {**facts, "version": version("fedrelay"), **more}


def facts(**headers):
    return {name: parse_facts(each) for name, each in headers.items()}


def table(labels, categories):
    statistics = {"rows": 400, "numbers": {}, "categories": {"city": dict.fromkeys(categories, 1)}}
    return {"target": "ill", "labels": labels, "statistics": statistics}


class Nodes:
    """A connection whose nodes reply at once."""

    def __init__(self, **headers):
        self.headers = headers

    def online(self):
        return set(self.headers)

    def send(self, node, message, seconds):
        return node

    def receive(self, ids, largest):
        yield from ((node, Message(json.loads(json.dumps(self.headers[node])))) for node in ids)

    def close(self):
        pass


def register(folder, **headers):
    return register_nodes(Nodes(**headers), tuple(headers), folder, 0.0)


def test_a_node_that_claims_a_hundred_billion_samples_does_not_register(tmp_path):
    with pytest.raises(EngineError) as refused:
        register(tmp_path, a=header(), b=header(), c=header(10**11))
    assert str(refused.value) == (
        "node 'c' is refused: it claims 100,000,000,000 samples, the median of all nodes is 400; agree on the number "
        "with its owner, and write it into roster.yaml: nodes: {c: {samples: NUMBER}}"
    )
    assert not (tmp_path / "known").exists()
    (tmp_path / ROSTER).write_text("nodes: {c: {samples: 500}}")
    with pytest.raises(EngineError, match=r"it claims 501 samples, at most 500 are agreed \(roster\.yaml\)"):
        register(tmp_path, a=header(), b=header(), c=header(501))
    assert register(tmp_path, a=header(), b=header(), c=header(500)).remarks == ()


def test_test_samples_weigh_evaluations_and_are_claims_too(tmp_path):
    with pytest.raises(EngineError, match="node 'b' is refused: it claims 10,000,000 held-out samples"):
        register(tmp_path, a=header(tests=50), b=header(tests=10**7), c=header(tests=50))
    with pytest.raises(EngineError, match="node 'a' is refused: it claims 9,999 validation samples"):
        register(tmp_path, a=header(validations=9999), b=header(validations=50), c=header(validations=50))
    (tmp_path / ROSTER).write_text("nodes: {a: {test_samples: 40, validation_samples: 9}}")
    for claim, what in ({"tests": 41}, "41 held-out"), ({"validations": 10}, "10 validation"):
        with pytest.raises(EngineError, match=f"it claims {what} samples, at most"):
            register(tmp_path, a=header(**claim), b=header(), c=header())
    (tmp_path / ROSTER).unlink()
    assert register(tmp_path, a=header(tests=50), b=header()).remarks == ()  # only one evaluates


@pytest.mark.parametrize(
    ("liar", "message"),
    [
        (header(classes=99_999), "it has 99,999 classes, the median of all nodes is 10; agree on the number"),
        (
            header(classes=2, table=table([f"label {n}" for n in range(5000)], ["bonn"])),
            "it has 5,000 classes, the median of all nodes is 10; agree",
        ),
        (
            header(table=table(["no", "yes"], [f"city {n}" for n in range(400)])),
            "it has 400 categories, the median of all nodes is 2; agree",
        ),
    ],
)
def test_a_node_that_would_blow_up_the_model_does_not_register(liar, message, tmp_path):
    honest = header(table=table(["no", "yes"], ["bonn", "kiel"]))
    with pytest.raises(EngineError, match=f"node 'b' is refused: {message}"):
        register(tmp_path, a=honest, b=liar, c=honest)


def test_accomplices_do_not_raise_the_bounds():
    """The bound of five nodes is 10 · 5 times their median, whatever two of them claim."""
    honest = {"a": header(), "b": header(300), "c": header(500)}
    two = facts(**honest, x=header(10**9), y=header(10**9))
    assert [refused.node for refused in refused_claims(two, Roster())] == ["x", "y"]
    within = facts(**honest, x=header(25_000), y=header(24_000))
    assert list(refused_claims(within, Roster())) == []
    remarks = list(unusual_claims(within, {}, Roster()))
    assert [remark.node for remark in remarks] == ["x", "y"]
    assert remarks[0].text == (
        "is one of 2 nodes (x, y) that claim 98 % of all samples together, each more than 10 times the median, and no "
        "number is agreed in roster.yaml"
    )
    large = facts(**{name: header() for name in "abc"}, x=header(classes=5000), y=header(classes=5000))
    assert [refused.node for refused in refused_claims(large, Roster())] == ["x", "y"]


def test_of_two_nodes_none_is_refused_for_what_the_other_claims():
    """Nobody knows which one lies, so a warning names both."""
    claimed = facts(a=header(1000, classes=300), b=header(1, classes=2))
    assert list(refused_claims(claimed, Roster())) == []
    assert [str(remark) for remark in unusual_claims(claimed, {}, Roster())] == [
        "node 'a' claims 100 % of all samples (node 'b' 1), and no number is agreed in roster.yaml",
        "node 'a' has 300 classes, node 'b' 2: the model gets 300 or more because of it. Is its highest label right?",
    ]


def test_agreed_samples_bound_the_rows_of_sums():
    """Otherwise a node could claim its rows as validation samples, about which nothing was agreed."""
    sums = {"rows": 10**9, "numbers": {}, "categories": {}}
    liar = header(400, validations=10**9 - 400, table={"target": "ill", "labels": ["no"], "statistics": sums})
    [refused] = refused_claims(facts(a=liar, b=header()), Roster(nodes={"a": AgreedNumbers(samples=400)}))
    assert refused.text == "claims 1,000,000,000 rows in the sums of its table, at most 400 are agreed (roster.yaml)"
    agreed = AgreedNumbers(samples=400, validation_samples=10**9)
    assert list(refused_claims(facts(a=liar, b=header()), Roster(nodes={"a": agreed}))) == []


def test_agreed_sizes_hold_for_all_nodes():
    claimed = facts(a=header(classes=2000), b=header(classes=10))
    assert list(refused_claims(claimed, Roster(classes=2000))) == []
    assert list(unusual_claims(claimed, {}, Roster(classes=2000))) == []
    [refused] = refused_claims(claimed, Roster(classes=10))
    assert str(refused) == "node 'a' has 2,000 classes, at most 10 are agreed (roster.yaml)"


def test_similar_nodes_are_not_remarked():
    for claimed in (facts(a=header(), b=header(classes=3), c=header(classes=20)), facts(a=header(classes=100)), {}):
        assert list(unusual_claims(claimed, claimed, Roster())) == []


def test_a_label_far_above_all_others_is_remarked():
    [remark] = unusual_claims(facts(a=header(), b=header(classes=97), c=header(classes=9)), {}, Roster())
    assert str(remark) == (
        "node 'b' has 97 classes, the median of all nodes is 10: the model gets 97 or more because of it. Is its "
        "highest label right?"
    )


def test_most_of_all_samples_and_jumps_are_remarked_once(tmp_path):
    [most] = register(tmp_path, a=header(1700), b=header(), c=header()).remarks
    assert (
        most.text
        == "claims 68 % of all samples (the median of all nodes is 400), and no number is agreed in roster.yaml"
    )
    [grown] = register(tmp_path, a=header(1700), b=header(), c=header(801)).remarks
    assert str(grown) == "node 'c' claims 801 samples; it claimed 400 when it registered last"
    (tmp_path / ROSTER).write_text("nodes: {a: {samples: 1700}}")
    assert register(tmp_path, a=header(1700), b=header(), c=header(801)).remarks == ()


def test_the_list_of_nodes_shows_remarks_and_refusals(tmp_path):
    register(tmp_path, a=header(), b=header(), c=header())
    found = list_nodes(Nodes(a=header(850), b=header(), c=header(10**11)), NAMES, tmp_path, 1.0, {})
    assert [entry.status.partition(" samples")[0] for entry in found] == [
        "ready",
        "ready",
        "refused: it claims 100,000,000,000",
    ]
    assert [len(entry.remarks) for entry in found] == [1, 0, 2]
    assert found[0].remarks[0].text == "claims 850 samples; it claimed 400 when it registered last"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: {nroth: {samples: 5}}", "nodes.nroth: there is no key of this node (a, b, c)"),
        ("nodes: {a: {samples: -5}}", "nodes.a.samples"),
        ("nodes: {a: {sample: 5}}", "nodes.a.sample"),
        ("north", "a roster must be a mapping"),
    ],
)
def test_a_wrong_roster_is_refused_with_its_place(text, message, tmp_path):
    (tmp_path / ROSTER).write_text(text)
    with pytest.raises(SpecError) as refused:
        read_roster_file(tmp_path, NAMES)
    assert message in str(refused.value)
    assert str(tmp_path / ROSTER) in str(refused.value)
