"""Label flipping: who attacks, and what becomes of labels."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedrelay as fr
from fedrelay.data.federation_wrapper import FederationWrapper
from fedrelay.data.samples import Samples
from fedrelay.experiment.spec import AttackSettings, Comparison, Experiment, validate
from fedrelay.robustness.label_flip import (
    CIFAR100_SUPERCLASSES,
    SWAP_LISTS,
    LabelFlippedFederation,
    draw_attackers,
    flip_labels,
    swap_table,
    swapped_classes,
)

SWAP = AttackSettings(name="label-flip", swap=(0, 2))


def histograms(rows):
    """A federation of which only the histograms are known."""
    found = np.array(rows)
    return SimpleNamespace(
        client_count=len(found), class_count=found.shape[1], name="toy", histogram=lambda each: found[each]
    )


def test_flipping_twice_restores_the_labels(toy):
    once = LabelFlippedFederation(toy, {1: swap_table([(0, 2)], 3)})
    twice = LabelFlippedFederation(once, {1: swap_table([(0, 2)], 3)})
    before, after = toy.train_samples(1).y, once.train_samples(1).y
    assert torch.equal(after, torch.tensor([2, 1, 0])[before])
    assert not torch.equal(after, before)
    assert torch.equal(twice.train_samples(1).y, before)
    assert torch.equal(once.train_samples(1).x, toy.train_samples(1).x)
    assert torch.equal(once.train_samples(0).y, toy.train_samples(0).y)
    assert once.fingerprint() != toy.fingerprint()


def test_the_histogram_of_an_attacker_has_the_two_entries_exchanged(toy):
    flipped = LabelFlippedFederation(toy, {3: swap_table([(0, 2)], 3)})
    clean = toy.histogram(3)
    assert flipped.histogram(3).tolist() == [clean[2], clean[1], clean[0]]
    assert flipped.flips == clean[0] + clean[2]
    assert flipped.histogram(2).tolist() == toy.histogram(2).tolist()


def test_padding_is_left_alone(toy):
    class Sequences(FederationWrapper):
        def train_samples(self, client):
            return Samples(torch.zeros(1, 3, dtype=torch.long), torch.tensor([[0, 2, -100]]))

    flipped = LabelFlippedFederation(Sequences(toy), {0: swap_table([(0, 2)], 3)})
    assert flipped.train_samples(0).y.tolist() == [[2, 0, -100]]


@given(st.permutations(range(12)), st.integers(1, 6))
def test_an_exchange_is_its_own_inverse(order, pairs):
    table = swap_table(list(zip(order[:pairs], order[pairs : 2 * pairs], strict=True)), 12)
    assert table[table].tolist() == list(range(12))
    assert sum(table != np.arange(12)) == 2 * pairs


def test_attackers_by_group():
    """Ten groups of ten, of which client 0 of each cannot attack: ⌊.3·10⌋ groups with ⌊.5·9⌋ attackers each."""
    federation = histograms([[0, 5, 0] if client % 10 == 0 else [1, 5, 0] for client in range(100)])
    groups = tuple(tuple(range(10 * each, 10 * each + 10)) for each in range(10))
    attack = SWAP.model_copy(update={"group_share": 0.3})
    attackers = draw_attackers(federation, attack, groups, seed=1)
    assert Counter(Counter(client // 10 for client in attackers).values()) == {4: 3}
    assert all(client % 10 for client in attackers)
    assert draw_attackers(federation, attack, groups, seed=2) != attackers
    fewest = attack.model_copy(update={"group_share": 0.01, "client_share": 0.01})
    assert len(draw_attackers(federation, fewest, groups, seed=1)) == 1


def test_attackers_without_groups():
    federation = histograms([[client % 2, 1, 0] for client in range(100)])
    attack = SWAP.model_copy(update={"group_share": 0.5, "client_share": 0.1})
    attackers = draw_attackers(federation, attack, (), seed=1)
    assert len(attackers) == 2  # ⌊.5·.1·50⌋
    assert all(client % 2 for client in attackers)
    with pytest.raises(fr.DataError, match=r"no client that can be an attacker has samples of the classes \[0, 2\]"):
        draw_attackers(histograms([[0, 1, 0]]), SWAP, (), seed=1)


def test_pairings(toy):
    four = AttackSettings(name="label-flip", swap=(3, 0, 1, 2), group_share=1, client_share=1)
    federation = histograms([[1, 1, 1, 1, 1]] * 40)
    fixed = flip_labels(federation, four, (), seed=1)
    assert {tuple(table) for table in fixed.tables.values()} == {(3, 2, 1, 0, 4)}
    drawn = flip_labels(federation, four.model_copy(update={"pairing": "random"}), (), seed=1)
    assert {tuple(table) for table in drawn.tables.values()} == {(1, 0, 3, 2, 4), (2, 3, 0, 1, 4), (3, 2, 1, 0, 4)}


def test_named_lists():
    assert Counter(CIFAR100_SUPERCLASSES) == dict.fromkeys(range(20), 5)
    [extra] = SWAP_LISTS["extra-sc"]
    assert len({CIFAR100_SUPERCLASSES[each] for each in extra}) == 20
    assert [len(each) for each in SWAP_LISTS["intra-sc"]] == [4] * 5
    assert all(len({CIFAR100_SUPERCLASSES[each] for each in chosen}) == 1 for chosen in SWAP_LISTS["intra-sc"])
    inside = flip_labels(
        histograms([[1] * 100]), AttackSettings(name="label-flip", swap_list="intra-sc", pairing="random"), (), seed=1
    )
    table = inside.tables[0]
    assert sum(table != np.arange(100)) == 20
    assert all(CIFAR100_SUPERCLASSES[table[each]] == CIFAR100_SUPERCLASSES[each] for each in range(100))
    assert len(swapped_classes(AttackSettings(name="label-flip", swap_list="extra-sc"))) == 20


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        ({"name": "label-flip"}, "attack.swap: label-flip needs either swap"),
        (
            {"name": "label-flip", "swap": [0, 1, 2]},
            r"attack.swap: must be pairs of different classes, got \[0, 1, 2\]",
        ),
        ({"name": "label-flip", "swap": [0, 0]}, "attack.swap: must be pairs"),
        (
            {"name": "label-flip", "swap": [0, 1], "swap_list": "intra-sc"},
            "attack.swap: .*either swap",
        ),
        ({"swap": [0, 1]}, "attack.swap: has no effect without an attack"),
        ({"name": "label-flop", "swap": [0, 1]}, "attack.name: .*did you mean 'label-flip'"),
        ({"name": "label-flip", "swap": [0, 1], "pairing": "rnd"}, "attack.pairing: must be 'fixed' or 'random'"),
        ({"name": "label-flip", "swap": [0, 1], "group_share": 0}, "attack.group_share: must be greater than 0"),
        ({"name": "label-flip", "swap": [0, 1], "shares": 1}, "attack.shares: unknown key"),
    ],
)
def test_impossible_attacks(attack, message):
    with pytest.raises(fr.SpecError, match=message):
        validate(Experiment, {"method": "fedavg", "attack": attack})


def test_classes_must_exist(small):
    with pytest.raises(fr.SpecError, match=r"attack\.swap: 'digits' has the classes 0 … 9, but no class 11"):
        fr.plan("fedavg", **small, attack={"name": "label-flip", "swap": [0, 11]})
    with pytest.raises(fr.SpecError, match="needs CIFAR-100, but 'digits' has 10 classes"):
        fr.plan("fedavg", **small, attack={"name": "label-flip", "swap_list": "intra-sc"})
    with pytest.raises(fr.SpecError, match="has all data in one place, so no client can attack"):
        fr.plan("centralized", **small, attack={"name": "label-flip", "swap": [0, 1]})
    with pytest.raises(fr.SpecError, match=r"eval\.classes: 'digits' has the classes 0 … 9, got 10"):
        fr.plan("fedavg", **small, eval={"classes": [10]})


def test_a_run_under_attack_resumes_to_the_same_bits(small, tmp_path):
    attack = {"name": "label-flip", "swap": [0, 6], "group_share": 1, "client_share": 1}
    settings = {**small, "alpha": 100, "workers": 1, "attack": attack}
    whole = fr.run("fedseq", **settings)

    class Die:
        def on_run_start(self, experiment, round):
            pass

        def on_round_end(self, context):
            if context.round == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fr.run("fedseq", **settings, out=tmp_path / "run", checkpoint={"seconds": 0}, callbacks=Die())
    resumed = fr.resume(tmp_path / "run")
    assert torch.equal(resumed.weights, whole.weights)
    assert resumed.history == whole.history
    assert resumed.attack == whole.attack
    assert whole.attack["attackers"] == list(range(20))  # all of all groups
    assert resumed.experiment.eval.classes == (0, 6)
    assert whole.accuracy_classes == pytest.approx(np.mean([row["accuracy_classes"] for row in whole.history]))
    clean = fr.run("fedseq", **small | {"alpha": 100, "workers": 1}, eval={"classes": [0, 6]})
    assert whole.accuracy_classes < clean.accuracy_classes
    assert clean.attack == {}


def test_an_entry_may_be_attacked_alone():
    from fedrelay.experiment.comparison_runs import experiments

    flip = {"name": "label-flip", "swap": [0, 6]}
    compared = validate(
        Comparison,
        {
            "methods": ["fedavg", {"method": "fedseq", "attack": {"pairing": "random"}},
                        {"method": "fedavg", "label": "clean", "attack": {"name": "none"}}],
            "attack": flip,
        },
    )  # fmt: skip
    found = [experiment for _, experiment in experiments(compared)]
    assert [each.attack.name for each in found] == ["label-flip", "label-flip", "none"]
    assert [each.attack.pairing for each in found] == ["fixed", "random", "fixed"]
    assert {each.eval.classes for each in found} == {(0, 6)}
