"""The commands of a federation: what they make, and one message for every mistake. Nothing here needs a network."""

from __future__ import annotations

import datetime
import importlib.util
import sys

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")


def old_certificate() -> bytes:
    """One that was good in the days before 2001-02-03."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    begin, end = (datetime.datetime(year, 2, 3, tzinfo=datetime.UTC) for year in (2000, 2001))
    builder = builder.serial_number(1).not_valid_before(begin).not_valid_after(end)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


OWN = """
def broken(): raise ValueError("no disk\\n  at all")
def leaves(): raise SystemExit(0)
def three(): return 3
def nothing(): return None
def word(): return "ab"
def ragged(): return [[1, 2], [3]], [0, 1]
def empty(): return None, None
"""


@pytest.fixture
def prepared(program, tmp_path, monkeypatch):
    """A server's folder, a key, samples and functions in the current folder."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own", raising=False)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "leaving.py").write_text("raise SystemExit('usage')")
    (tmp_path / "old.pem").write_bytes(old_certificate())
    assert program("certificates", "server", "-q").code == 0
    assert program("key", "a.key", "-q").code == 0
    (tmp_path / "server" / "nodes" / "a.pub").write_bytes((tmp_path / "a.key.pub").read_bytes())
    (tmp_path / "a.csv").write_text("age,ill\n50,yes\n")
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2), np.float32), y=np.array([0, 1, 0, 1]))
    return program


def test_preparing(program, tmp_path):
    made = program("certificates", "server", "--host", "relay.example.org")
    assert made.code == 0
    assert "relay.example.org, localhost, 127.0.0.1" in " ".join(made.out.split())
    assert "Send a.key.pub" in " ".join(program("key", "a.key").out.split())
    again = program("certificates", "server")
    assert again.code == 2
    assert "already exists and is not replaced" in again.err
    renewed = program("certificates", "server", "--renew")
    assert renewed.code == 0
    assert "Renewed server/server.pem and requests.pem, valid until 2" in " ".join(renewed.out.split())
    odd = program("certificates", "other", "--host", "two words")
    assert (odd.code, "--host: 'two words' is neither a host name nor an address" in odd.err) == (2, True)
    assert not (tmp_path / "other" / "ca.pem").exists()


NODE = ("node", "--key", "a.key", "--ca", "server/ca.pem", "--superlink", "127.0.0.1:9")
NOISY = ("--classes", "10", "--share-histogram", "--histogram-epsilon", "1")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((*NODE, "--data", "b.npz"), 3, "b.npz: file not found"),
        ((*NODE, "--data", "a.npz", "--classes", "1"), 3, "the largest label is 1, but there are 1 classes"),
        ((*NODE, "--data", "a.npz", "--device", "warp"), 2, "'warp' cannot be used here"),
        ((*NODE, "--data", "a.npz", "--model", "nobody_has_this:net"), 2, "cannot import nobody_has_this"),
        ((*NODE, "--data", "a.npz", "--model", "own:three"), 2, "--model own:three: must return an nn.Module, got int"),
        ((*NODE, "--data", "a.npz", "--model", "own:nothing"), 2, "must return an nn.Module, got NoneType"),
        ((*NODE, "--data", "a.npz", "--plugin", "nobody_has_this"), 2, "nobody_has_this"),
        ((*NODE, "--data", "a.npz", "--hold-out", "0.2"), 2, "--hold-out: is now --holdout"),
        ((*NODE, "--data", "own:broken"), 3, "own:broken: ValueError: no disk at all"),
        ((*NODE, "--data", "own:leaves"), 3, "own:leaves: SystemExit: 0"),
        ((*NODE, "--data", "own:three"), 3, "own:three: must return (x, y) or (x, y, x_test, y_test), got int"),
        ((*NODE, "--data", "own:word"), 3, "own:word: must return (x, y) or (x, y, x_test, y_test), got str of 2"),
        ((*NODE, "--data", "own:nobody"), 3, "own:nobody: own has no function"),
        ((*NODE, "--data", "own:ragged"), 3, "own:ragged: x is not an array (ValueError)"),
        ((*NODE, "--data", "own:empty"), 3, "own:empty: x must be an array of numbers, got NoneType"),
        ((*NODE, "--data", "leaving:load"), 3, "leaving failed when it was imported: SystemExit: usage"),
        ((*NODE, "--data", "a.npz", "--patience", "0"), 6, "the SuperLink at 127.0.0.1:9 cannot be reached"),
        ((*NODE[:2], "b.key", *NODE[3:], "--data", "a.npz"), 2, "b.key: the private key cannot be read (No such file"),
        (
            (*NODE[:2], "a.key.pub", *NODE[3:], "--data", "a.npz"),
            2,
            "a.key.pub: is a public key; --key needs the private",
        ),
        ((*NODE[:2], "server/ca.pem", *NODE[3:], "--data", "a.npz"), 2, "server/ca.pem: is a certificate; --key needs"),
        ((*NODE[:2], "server/ca.key", *NODE[3:], "--data", "a.npz"), 2, "ca.key: cannot be read as a private key"),
        ((*NODE[:2], "server", *NODE[3:], "--data", "a.npz"), 2, "server: the private key cannot be read"),
        (
            (*NODE[:4], "server/ca.key", *NODE[5:], "--data", "a.npz"),
            2,
            "ca.key: is a private key; a certificate is needed",
        ),
        ((*NODE[:4], "a.key.pub", *NODE[5:], "--data", "a.npz"), 2, "a.key.pub: cannot be read as a certificate"),
        (
            (*NODE[:4], "old.pem", *NODE[5:], "--data", "a.npz"),
            2,
            "old.pem: the certificate expired on 2001-02-03",
        ),
        ((*NODE[:-1], "relay", "--data", "a.npz"), 2, "--superlink: must be HOST:PORT, such as relay.example.org:9092"),
        ((*NODE[:-1], "https://relay:9092", "--data", "a.npz"), 2, "must be HOST:PORT"),
        ((*NODE[:-1], "relay:99999", "--data", "a.npz"), 2, "must be HOST:PORT"),
        ((*NODE[:-1], "relay:", "--data", "a.npz"), 2, "must be HOST:PORT"),
        ((*NODE[:4], "no.pem", *NODE[5:], "--data", "a.npz"), 2, "no.pem: the authority's certificate cannot be read"),
        (
            (*NODE, "--data", "a.npz", "--largest-message", "much"),
            2,
            "--largest-message: expects a number and a unit",
        ),
        ((*NODE, "--data", "a.npz", "--largest-message", "0 GB"), 2, "such as 500 MB or 2 GB; got '0 GB'"),
        ((*NODE, "--data", "a.npz", "--classes", "100001"), 2, "--classes: must be an integer from 1 to 100,000"),
        ((*NODE, "--data", "a.npz", "--holdout", "nan"), 2, "--holdout: must be at least 0 and less than 1, got nan"),
        ((*NODE, "--data", "a.csv", "--no-header"), 2, "--no-header: is gone: write the names of the columns into"),
        ((*NODE, "--data", "a.csv", "--label", "y"), 2, "--label: is now --target, the column to predict"),
        ((*NODE, "--data", "a.npz", "--min-rows", "5"), 2, "--min-rows: has an effect only with a table, a .csv or"),
        ((*NODE, "--data", "a.npz", "--share-evaluation"), 2, "--share-evaluation: has an effect only with --roster"),
        ((*NODE, "--data", "a.npz", "--drop", "id"), 2, "--drop: has an effect only with a table"),
        ((*NODE, "--data", "a.npz", "--target", ""), 2, "--target: has an effect only with a table"),
        ((*NODE, "--data", "a.csv", "--classes", "3"), 2, "--classes: has no effect with a table, whose labels are"),
        ((*NODE, "--data", "a.csv"), 2, "--target: is required: the column to predict; columns are age, ill"),
        (
            (*NODE, "--data", "a.csv", "--target", "ill", "--require-dp", "1"),
            2,
            "--data a.csv: shares sums of its columns without noise, which --require-dp excludes",
        ),
        ((*NODE, "--data", "a.npz", "--histogram-epsilon", "1"), 2, "--histogram-epsilon: needs --share-histogram"),
        (
            (*NODE, "--data", "a.npz", "--share-histogram", "--histogram-epsilon", "1"),
            2,
            "--histogram-epsilon: needs --classes: the highest label would show",
        ),
        (
            (*NODE, "--data", "a.csv", "--target", "ill", "--share-histogram", "--histogram-epsilon", "1"),
            2,
            "--histogram-epsilon: has no effect on a table",
        ),
        *(
            ((*NODE, "--data", "a.npz", *NOISY, option, "0.2"), 2, f"{option}: sets samples aside by their labels")
            for option in ("--holdout", "--validation")
        ),
        *(
            ((*NODE, "--data", "a.npz", *NOISY[:-1], epsilon), 2, "--histogram-epsilon: must be at least 1e-06, got")
            for epsilon in ("0", "1e-20", "inf", "nan")
        ),
        ((*NODE, "--data", "a.npz", "--budget", "0"), 2, "--budget: needs --require-dp"),
        ((*NODE, "--data", "gone.csv", "--target", "y"), 3, "gone.csv: file not found"),
        (("nodes", "nowhere"), 2, "engine.folder: no such folder: nowhere"),
        (
            ("nodes", "server", "--superlink", "relay"),
            2,
            "--superlink: must be HOST:PORT, such as relay.example.org:9092",
        ),
        (
            ("run", "fedavg", "--engine", "flower", "--set", "engine.superlink=x"),
            2,
            "engine.superlink: must be HOST:PORT",
        ),
        (("nodes", "server", "--superlink", "127.0.0.1:9", "--wait", "0"), 6, "127.0.0.1:9 cannot be reached"),
        (("superlink", "nowhere"), 2, "the authority's certificate cannot be read"),
        (("run", "fedavg", "--engine", "flower"), 2, "engine.folder: is required with engine 'flower'"),
        (
            ("run", "fedavg", "--engine", "flower", "--set", "engine.folder=server", "--alpha", "0"),
            2,
            "data.alpha: has no effect with engine 'flower'",
        ),
    ],
)
def test_mistakes_get_one_message(words, code, message, prepared):
    ended = prepared(*words)
    assert ended.code == code
    assert message in " ".join(ended.err.split())
    assert "Traceback" not in ended.err
    assert "fedrelay resume" not in ended.err  # nothing was begun


def test_sizes_in_plain_units():
    from fedrelay.cli.deploy import _bytes

    assert [_bytes("x", words) for words in ("2 GB", "500MB", " 1.5 kB ")] == [2 * 10**9, 500 * 10**6, 1500]


def test_who_is_there(prepared, monkeypatch):
    from fedrelay.engines.flower.node_facts import NodeFacts
    from fedrelay.engines.flower.server.claims import Remark
    from fedrelay.engines.flower.server.node_registration import ListedNode

    def member(name, classes, *remarks):
        facts = {"samples": 5, "tests": 0, "shape": (2,), "kind": "tabular", "fingerprint": "f"}
        return ListedNode(name, "ready", 1.0, NodeFacts(**facts, classes=classes, version="0.0.1"), remarks)

    odd = Remark("b", "has 900 classes, all others at most 2")
    found = [member("a", 2), member("b", 900, odd), ListedNode("c", "failed: [/red]", None, None)]
    monkeypatch.setattr("fedrelay.engines.flower.connect.show_nodes", lambda wanted: found)
    said = prepared("nodes", "server")
    assert "2 of 3 are ready; 900 classes, from the labels of b" in " ".join(said.out.split())
    assert "node 'b' has 900 classes, all others at most 2" in said.err
    assert "failed: [/red]" in said.out  # words of others are shown, not obeyed
    assert len(prepared("nodes", "server", "--json").json["warnings"]) == 1


def test_without_the_extra(program, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr("fedrelay.engines.flower.find_spec", lambda name: None if name == "flwr" else find(name))
    for words in (("certificates", "server"), ("key", "a.key"), ("run", "fedavg", "--engine", "flower")):
        ended = program(*words)
        assert ended.code == 6
        assert "pip install 'fedrelay[flower]'" in " ".join(ended.err.split())


def test_words_of_others_cannot_end_a_node(prepared, monkeypatch):
    """A server may ask for a part whose name looks like markup; the node says so and goes on."""

    def served(*_, say, **__):
        say("a request was not answered: unknown part '[/]' " + "x" * 100)

    monkeypatch.setattr("fedrelay.engines.flower.node.serve_loop.serve", served)
    ended = prepared(*NODE, "--data", "a.npz")
    assert ended.code == 0
    assert "unknown part '[/]' " + "x" * 100 in ended.err  # on one line, for logs


def test_a_node_answers_the_server_alone_and_seals_for_its_roster(prepared, monkeypatch):
    """What the command passes on: the checks themselves have tests of their own."""
    from fedrelay.engines.flower.messages import FAILED, Message

    services = []
    monkeypatch.setattr(
        "fedrelay.engines.flower.node.serve_loop.serve", lambda _, service, *__, **___: services.append(service)
    )
    assert prepared("roster", "server", "roster.yaml", "-q").code == 0
    ended = prepared(*NODE, "--data", "a.npz", "--roster", "roster.yaml", "-q")
    assert ended.code == 0, ended.err
    [service] = services
    reply = service.respond(Message({"kind": "describe"}))
    assert reply.header["kind"] == FAILED
    assert reply.header["reason"].startswith("unsigned request: ")
    assert list(service.roster) == ["a"]
    assert service.sealed is not None, "a node with a roster takes part in sealed routes only"
