"""The roster with keys: owners pin it, and the server's own must agree with the keys it admits."""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

from fedrelay.cli import main
from fedrelay.engines.flower.credentials import make_node_key, private_key, public_keys
from fedrelay.engines.flower.roster import keys_digest, name_in_roster, pinned_keys, read_roster_file
from fedrelay.errors import SpecError

NAMES = ("1.5", "east", "north")


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "server"
    (folder / "nodes").mkdir(parents=True)
    for name in NAMES:
        make_node_key(tmp_path / f"{name}.key").rename(folder / "nodes" / f"{name}.pub")
    return folder


def test_a_roster_has_all_keys_and_the_agreed_numbers(server, tmp_path, capsys):
    (server / "roster.yaml").write_text("classes: 10\nnodes: {east: {samples: 80}}\n")
    pinned = tmp_path / "roster.yaml"
    assert main(["roster", str(server), str(pinned)]) == 0
    keys = pinned_keys(pinned)
    assert keys == public_keys(server)
    assert keys_digest(keys) in capsys.readouterr().out
    assert name_in_roster(keys, private_key(tmp_path / "east.key").public_key(), pinned) == "east"
    (server / "roster.yaml").write_bytes(pinned.read_bytes())  # one file serves both
    roster = read_roster_file(server, NAMES)
    assert (roster.classes, roster.nodes["east"].samples, roster.nodes["north"].samples) == (10, 80, None)
    assert main(["roster", str(server), str(pinned)]) != 0
    assert "File exists" in capsys.readouterr().err


def test_a_node_that_is_not_in_it_is_told(server, tmp_path):
    stranger = make_node_key(tmp_path / "stranger.key")
    keys = public_keys(server)
    with pytest.raises(SpecError, match=r"the key of this node is not in it; it has the keys of 1\.5, east, north"):
        name_in_roster(keys, private_key(stranger.with_suffix("")).public_key(), tmp_path / "roster.yaml")


def test_another_key_changes_the_digest(server, tmp_path):
    keys = public_keys(server)
    make_node_key(tmp_path / "other.key")
    other = private_key(tmp_path / "other.key").public_key()
    assert keys_digest({**keys, "east": other}) != keys_digest(keys)
    swapped = {**keys, "east": keys["north"], "north": keys["east"]}
    assert keys_digest(swapped) != keys_digest(keys)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nodes: {}\n", "has no nodes; make a roster with: fedrelay roster"),
        ("nodes: {east: {samples: 3}}\n", "nodes.east: has no key"),
        ("nodes: {east: {key: nonsense}}\n", "nodes.east: cannot be read as a public key"),
        ("nodes: {east: {key: '-----BEGIN PRIVATE KEY-----'}}\n", "nodes.east: is a private key"),
    ],
)
def test_rosters_that_cannot_be_pinned(text, problem, tmp_path):
    (tmp_path / "roster.yaml").write_text(text)
    with pytest.raises(SpecError, match=problem):
        pinned_keys(tmp_path / "roster.yaml")


def test_the_servers_roster_must_have_the_keys_that_it_admits(server, tmp_path):
    assert main(["roster", str(server), str(server / "roster.yaml"), "-q"]) == 0
    make_node_key(tmp_path / "other.key").rename(server / "nodes" / "east.pub")
    with pytest.raises(SpecError, match=r"nodes\.east: has another key than .*east\.pub; ask its owner which is right"):
        read_roster_file(server, NAMES)


def test_one_key_has_one_name(server, tmp_path):
    assert main(["roster", str(server), str(tmp_path / "roster.yaml"), "-q"]) == 0
    text = (tmp_path / "roster.yaml").read_text()
    keys = [line.split("key: ")[1] for line in text.splitlines() if "key: " in line]
    (tmp_path / "twice.yaml").write_text(text.replace(keys[2], keys[1]))
    with pytest.raises(SpecError, match=r"nodes\.north: has the same key as east"):
        pinned_keys(tmp_path / "twice.yaml")
