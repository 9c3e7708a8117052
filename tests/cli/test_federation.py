"""The commands of a federation: what they make, and one message for every mistake. Nothing here needs a network."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")


@pytest.fixture
def prepared(program, tmp_path):
    """A server's folder, a key and samples in the current folder."""
    assert program("certificates", "server", "-q").code == 0
    assert program("key", "a.key", "-q").code == 0
    (tmp_path / "server" / "nodes" / "a.pub").write_bytes((tmp_path / "a.key.pub").read_bytes())
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2), np.float32), y=np.array([0, 1, 0, 1]))
    return program


def test_preparing(program, tmp_path):
    made = program("certificates", "server", "--host", "relay.example.org")
    assert made.code == 0
    assert "relay.example.org, localhost, 127.0.0.1" in " ".join(made.out.split())
    assert "Send a.key.pub" in " ".join(program("key", "a.key").out.split())
    again = program("certificates", "server")
    assert again.code == 2
    assert "is there already, and is not replaced" in again.err


NODE = ("node", "--key", "a.key", "--ca", "server/ca.pem", "--superlink", "127.0.0.1:9")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((*NODE, "--data", "b.npz"), 3, "b.npz: there is no such file"),
        ((*NODE, "--data", "a.npz", "--classes", "1"), 3, "the greatest label is 1, it must lie within the 1 classes"),
        ((*NODE, "--data", "a.npz", "--device", "warp"), 2, "'warp' cannot be used here"),
        ((*NODE, "--data", "a.npz", "--model", "nobody_has_this:net"), 3, "nobody_has_this:net: ModuleNotFoundError"),
        ((*NODE, "--data", "a.npz", "--patience", "0"), 6, "the SuperLink at 127.0.0.1:9 cannot be reached"),
        ((*NODE[:2], "b.key", *NODE[3:], "--data", "a.npz"), 2, "b.key: cannot be read as a private key"),
        ((*NODE[:4], "no.pem", *NODE[5:], "--data", "a.npz"), 2, "no.pem: the authority's certificate cannot be read"),
        (
            (*NODE, "--data", "a.npz", "--largest-message", "much"),
            2,
            "--largest-message: a size is a number and a unit",
        ),
        ((*NODE, "--data", "a.npz", "--largest-message", "0 GB"), 2, "such as 500 MB or 2 GB; got '0 GB'"),
        ((*NODE, "--data", "a.npz", "--classes", "100001"), 2, "--classes: must be a whole number from 1 to 100,000"),
        ((*NODE, "--data", "a.npz", "--hold-out", "nan"), 2, "--hold-out: must be a share from 0 to below 1, got nan"),
        ((*NODE, "--data", "a.npz", "--no-header"), 2, "--no-header: is for .csv files"),
        (("nodes", "nowhere"), 2, "engine.folder: there is no folder nowhere"),
        (("nodes", "server", "--superlink", "relay"), 2, "engine.superlink: "),
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


def test_sizes_in_plain_units():
    from fedrelay.cli.federation import _bytes

    assert [_bytes("x", words) for words in ("2 GB", "500MB", " 1.5 kB ")] == [2 * 10**9, 500 * 10**6, 1500]


def test_who_is_there(prepared, monkeypatch):
    from fedrelay.engines.flower.remote import Facts
    from fedrelay.engines.flower.roll import Member

    def member(name, classes, version):
        facts = {"samples": 5, "tests": 0, "shape": (2,), "kind": "tabular", "sequence": False, "fingerprint": "f"}
        return Member(name, "ready", 1.0, Facts(**facts, classes=classes, version=version))

    found = [member("a", 2, "0.0.1"), member("b", 900, "0.0.1"), Member("c", "not there", None, None)]
    monkeypatch.setattr("fedrelay.engines.flower.roll.roll_call", lambda wanted: found)
    said = prepared("nodes", "server")
    assert "2 of 3 are ready; 900 classes, as the labels of b need" in " ".join(said.out.split())
    assert "node 'b' has labels up to 899, all others up to 1" in " ".join(said.err.split())
    assert said.err.count("has FedRelay 0.0.1, the server ") == 2
    assert len(prepared("nodes", "server", "--json").json["remarks"]) == 3


def test_without_the_extra(program, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr("fedrelay.engines.flower.find_spec", lambda name: None if name == "flwr" else find(name))
    for words in (("certificates", "server"), ("key", "a.key"), ("run", "fedavg", "--engine", "flower")):
        ended = program(*words)
        assert ended.code == 6
        assert "pip install 'fedrelay[flower]'" in " ".join(ended.err.split())
