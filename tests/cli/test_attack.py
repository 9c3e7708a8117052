from __future__ import annotations

import json
from functools import partial

import pytest

from fedrelay.robustness import gan_attack_run
from fedrelay.robustness.gan_attacker import feature_network

pytestmark = pytest.mark.usefixtures("no_drawing")

FLIP = ["attack", "label-flip", "--swap", "3,8", "--alpha", "100"]


def test_an_attack_beside_the_clean_reference(program, tiny, tmp_path):
    ended = program(*FLIP, *tiny, "--seeds", "1,2", "--pairing", "fixed", "--out", "here", "--json")
    assert ended.code == 0, ended.err
    facts = ended.json
    assert list(facts["methods"]) == ["fedavg clean", "fedavg fixed 0.5 0.5", "fedseq clean", "fedseq fixed 0.5 0.5"]
    assert list(facts["attacks"]) == ["fedavg fixed 0.5 0.5", "fedseq fixed 0.5 0.5"]
    damage = facts["attacks"]["fedavg fixed 0.5 0.5"]
    assert damage["reference"] == "fedavg clean"
    assert damage["attackers"] == 2  # ⌊.5·.5·10⌋
    before, after = (facts["methods"][name]["runs"] for name in ("fedavg clean", "fedavg fixed 0.5 0.5"))
    drops = [clean["accuracy_last"] - hit["accuracy_last"] for clean, hit in zip(before, after, strict=True)]
    assert damage["drop"]["mean"] == pytest.approx(sum(drops) / 2)
    assert damage["drop"]["std"] == pytest.approx(abs(drops[0] - drops[1]) / 2**0.5)
    on_classes = [run["accuracy_classes"] for run in after]
    assert damage["on_classes"]["mean"] == pytest.approx(sum(on_classes) / 2)
    assert after[0]["attack"]["flips"] > 0
    assert before[0]["attack"] == {}
    assert json.loads((tmp_path / "here/results.json").read_text()) == facts
    assert max(map(len, ended.err.splitlines())) <= 80
    assert "points lost against the same method and seed without attack" in ended.err

    (tmp_path / "here/fedseq fixed 0.5 0.5/seed-2/result.json").unlink()
    again = program("resume", "here", "--json")
    assert again.code == 0, again.err
    assert again.json["attacks"] == facts["attacks"]


def test_a_grid_of_attacks_on_one_method(program, tiny):
    grid = ["--group-share", "0.1,1", "--client-share", "0.1,1"]
    ended = program(*FLIP, "fedavg", *tiny, "--swap", "3,8,1,7", *grid, "--rounds", "1", "--json")
    assert ended.code == 0, ended.err
    assert len(ended.json["methods"]) == 1 + 2 * 2 * 2
    assert ended.json["attacks"]["fedavg random 1 1"]["attackers"] == 10
    assert ended.json["attacks"]["fedavg random 0.1 0.1"]["attackers"] == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["attack", "label-flip"], "--swap: missing; name the classes"),
        ([*FLIP, "--group-share", "half"], "--group-share: must be numbers separated by commas, got 'half'"),
        ([*FLIP, "--pairing", "loose"], "attack.pairing: must be 'fixed' or 'random', got 'loose'"),
        ([*FLIP, "fedseek"], "unknown name 'fedseek' (did you mean 'fedseq'?)"),
        (["attack", "label-flip", "--swap", "extra"], "'extra-sc' or 'intra-sc', got 'extra'"),
        (["attack", "label-flip", "--swap", "1,2,3"], "must be pairs of different classes, got [1, 2, 3]"),
        (["attack", "label-flip", "--swap", "1,77"], "got 77"),
    ],
)
def test_bad_attacks(program, words, message, tmp_path):
    ended = program(*words)
    assert ended.code == 2
    assert message in ended.err
    assert ended.err.count("\n") <= 4
    assert not (tmp_path / "runs").exists()


def test_help_has_examples(program):
    assert "fedrelay attack label-flip --data fashion-mnist --alpha 100 --swap 0,6" in program(
        "attack", "label-flip", "--help"
    ).out.replace("\n", " ")
    assert "label-flip" in program("attack", "--help").out


@pytest.fixture
def a_quick_look(monkeypatch):
    """Few images, compared by a network that has hardly learnt: no test here asks how well an attacker draws."""
    monkeypatch.setattr(gan_attack_run, "MOST_COMPARED", 300)
    monkeypatch.setattr(gan_attack_run, "feature_network", partial(feature_network, steps=20))


@pytest.mark.usefixtures("a_quick_look")
def test_a_gan_attack(program, tiny, tmp_path):
    words = [
        "attack",
        "gan",
        "fedavg",
        "fedseq",
        "--set",
        "grouping.max_clients=5",
        *tiny,
        "--fraction",
        "1",
        "--attacker",
        "3",
        "--attacker-epochs",
        "1",
    ]
    ended = program(*words, "--out", "here", "--json")
    assert ended.code == 0, ended.err
    assert ended.json["fedseq"]["attacker"] == 3
    (only,) = ended.json["fedavg"]["runs"]
    assert [visit["predecessor"] for visit in only["visits"]] == [None, None]
    honest = program("run", "fedavg", *tiny, "--fraction", "1", "--json").json
    assert {name: only[name] for name in ("seed", "accuracy", "weights_sha256")} == {
        name: honest[name] for name in ("seed", "accuracy", "weights_sha256")
    }
    assert json.loads((tmp_path / "here/results.json").read_text()) == ended.json
    assert (tmp_path / "here/fedseq.png").read_bytes().startswith(b"\x89PNG")
    assert "FID" in ended.err
    assert max(map(len, ended.err.splitlines())) <= 120
    assert program("attack", "gan", "--attacker", "200", *tiny).code == 2
    again = program(*words, "--out", "here")
    assert "here: is not empty; choose another --out" in again.err
    assert "a model of" not in again.err  # nothing was trained


@pytest.mark.usefixtures("a_quick_look")
def test_a_gan_attack_with_features_of_the_user(program, tiny, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "eyes.py").write_text(
        "def constant():\n    return lambda images: images.new_ones(len(images), 2)\n"
        "def flat():\n    return lambda images: images.new_ones(3)\n"
        "def number():\n    return 7\n"
    )
    words = ["attack", "gan", "fedavg", *tiny, "--fraction", "1", "--attacker-epochs", "1"]
    ended = program(*words, "--features", "eyes:constant", "--json")
    assert ended.code == 0, ended.err
    assert {visit["fid_all"] for visit in ended.json["fedavg"]["runs"][0]["visits"]} == {
        0.0
    }  # all images look the same
    for name, message in (
        ("flat", "features must have one row per image, got (3,)"),
        ("number", "--features eyes:number: must return a network or a function, got int"),
        ("nothing", "eyes:nothing: eyes has no function 'nothing'; it has constant, flat, number"),
    ):
        ended = program(*words, "--features", f"eyes:{name}")
        assert ended.code in (2, 3)
        assert message in " ".join(ended.err.split())


@pytest.mark.usefixtures("a_quick_look")
def test_attackers_in_several_runs_and_one_without_a_hop(program, tiny, tmp_path):
    words = ["attack", "gan", "fedavg", *tiny, "--seeds", "1,2", "--fraction", "1", "--attacker-epochs", "1", "--json"]
    ended = program(*words, "--out", "seen")
    assert ended.code == 0, ended.err
    assert [run["seed"] for run in ended.json["fedavg"]["runs"]] == [1, 2]
    assert sorted(file.name for file in (tmp_path / "seen").iterdir()) == [
        "fedavg-seed-1.png",
        "fedavg-seed-2.png",
        "results.json",
    ]
    assert "2 of 2" in ended.err
    ended = program(*words, "--fraction", "0.1", "--rounds", "1", "--attacker", "9", "--out", "unseen")
    assert ended.code == 0, ended.err
    assert [run["visits"] for run in ended.json["fedavg"]["runs"]] == [[], []]
    assert "note: fedavg, seed 2: client 9 was never visited" in ended.err
    assert [file.name for file in (tmp_path / "unseen").iterdir()] == ["results.json"]
