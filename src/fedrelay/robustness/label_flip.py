"""Label flipping: attackers swap the labels of some classes in their train samples.

Paper: A. Silvi, A. Rizzardi, D. Caldarola, B. Caputo, M. Ciccone. Accelerating Federated Learning via Sequential
Training of Grouped Heterogeneous Clients. IEEE Access 2024.

Rule: an attacker relabels s as t and t as s for every pair (s, t), once, before the first round; otherwise it is
honest. Fixed pairing: all attackers swap the same pairs, neighbours in the list of classes. Random pairing: every
attacker draws its own pairs. A client is suitable if it has a sample of these classes. If there are groups, max(1,
⌊L_S·groups⌋) of them are drawn, with max(1, ⌊L·suitable clients⌋) attackers each. If there are no groups, or if they
change during the run, max(1, ⌊L_S·L·suitable clients⌋) of all clients attack.

Deviations: for CIFAR-100 the paper swaps 20 classes of different superclasses (`extra-sc`), or 4 classes within each of
5 superclasses (`intra-sc`), without naming them. Here they are the first class of every superclass, and the first four
classes of the first five. Groups are formed before labels are swapped. A drawn group without suitable clients has no
attackers. The authors' program draws positions among suitable clients and applies them to all clients; ours does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fedrelay.data.federation import Federation, digest
from fedrelay.data.federation_wrapper import FederationWrapper
from fedrelay.data.partition import Ints
from fedrelay.data.samples import Samples, SampleSource
from fedrelay.errors import DataError, SpecError
from fedrelay.experiment.spec import AttackSettings
from fedrelay.rng import generator
from fedrelay.routes.base import Groups, sampled_count

CIFAR100_SUPERCLASSES = (
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7, 6, 13, 15, 3, 15, 0, 11, 1,
    10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12,
    12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0,
    17, 8, 14, 13,
)  # fmt: skip
"""The superclass of each class of CIFAR-100."""

ClassSets = tuple[tuple[int, ...], ...]
"""Sets of classes; labels are swapped within a set."""


def _members(superclass: int) -> tuple[int, ...]:
    return tuple(label for label, above in enumerate(CIFAR100_SUPERCLASSES) if above == superclass)


SWAP_LISTS: dict[str, ClassSets] = {
    "extra-sc": (tuple(_members(superclass)[0] for superclass in range(20)),),
    "intra-sc": tuple(_members(superclass)[:4] for superclass in range(5)),
}
"""The named lists of classes, both of CIFAR-100."""


@dataclass(frozen=True, repr=False)
class LabelFlippedFederation(FederationWrapper):
    """A federation in which attackers swapped labels; `tables` has the new label of each class, by attacker."""

    tables: Mapping[int, Ints]

    def train_samples(self, client: int) -> SampleSource:
        """The samples of one client, with swapped labels for an attacker, whose samples are then all in memory."""
        samples = self.inner.train_samples(client)
        if client not in self.tables:
            return samples
        x, y = samples.load()
        table = torch.from_numpy(self.tables[client])
        return Samples(x, torch.where(y >= 0, table[y.clamp(min=0)], y))  # ignored labels are negative

    def histogram(self, client: int) -> Ints:
        counts = self.inner.histogram(client)
        # A table is its own inverse, so the new count of a class is the old count of its partner.
        return counts[self.tables[client]] if client in self.tables else counts

    def fingerprint(self) -> str:
        attackers = sorted(self.tables)
        return digest("label-flip", self.inner.fingerprint(), attackers, *(self.tables[each] for each in attackers))

    @cached_property
    def flips(self) -> int:
        """The number of labels that were changed."""
        return sum(
            int(self.inner.histogram(client)[table != np.arange(len(table))].sum())
            for client, table in self.tables.items()
        )

    def facts(self) -> dict[str, Any]:
        """The attackers and the number of changed labels, for the summary of a run."""
        return {"name": "label-flip", "attackers": sorted(self.tables), "flips": self.flips}


def class_sets(attack: AttackSettings) -> ClassSets:
    """The sets of classes within which labels are swapped."""
    return SWAP_LISTS[attack.swap_list] if attack.swap_list is not None else (attack.swap,)


def swapped_classes(attack: AttackSettings) -> tuple[int, ...]:
    """All classes whose labels are swapped."""
    return tuple(sorted(label for classes in class_sets(attack) for label in classes))


def check_attack(attack: AttackSettings, federation: Federation) -> None:
    """Refuse an attack on classes that the data set does not have."""
    if attack.swap_list is not None and federation.class_count != len(CIFAR100_SUPERCLASSES):
        raise SpecError(
            f"attack.swap_list: {attack.swap_list!r} needs CIFAR-100, but {federation.name!r} has "
            f"{federation.class_count} classes; use attack.swap"
        )
    if beyond := [label for label in swapped_classes(attack) if label >= federation.class_count]:
        raise SpecError(
            f"attack.swap: {federation.name!r} has the classes 0 … {federation.class_count - 1}, but no class "
            f"{beyond[0]}"
        )


def flip_labels(federation: Federation, attack: AttackSettings, groups: Groups, seed: int) -> LabelFlippedFederation:
    """The federation with labels swapped by attackers, who are drawn from the groups or from all clients."""
    sets = class_sets(attack)
    tables = {
        client: swap_table(_pairs(sets, attack, seed, client), federation.class_count)
        for client in draw_attackers(federation, attack, groups, seed)
    }
    return LabelFlippedFederation(federation, tables)


def draw_attackers(federation: Federation, attack: AttackSettings, groups: Groups, seed: int) -> tuple[int, ...]:
    """The attackers, in ascending order."""
    classes = list(swapped_classes(attack))

    def suitable(clients: Sequence[int]) -> list[int]:
        return [client for client in clients if federation.histogram(client)[classes].sum()]

    if groups:
        count = sampled_count(len(groups), attack.group_share)
        drawn = generator(seed, "attacked-groups").choice(len(groups), count, replace=False).tolist()
        pools = {group: (suitable(groups[group]), attack.client_share) for group in drawn}
    else:
        pools = {0: (suitable(range(federation.client_count)), attack.group_share * attack.client_share)}
    attackers = [
        int(client)
        for group, (pool, share) in sorted(pools.items())
        if pool
        for client in generator(seed, "attackers", group).choice(pool, sampled_count(len(pool), share), replace=False)
    ]
    if not attackers:
        raise DataError(f"attack.swap: no client that can be an attacker has samples of the classes {classes}")
    return tuple(sorted(attackers))


def swap_table(pairs: Sequence[tuple[int, int]], classes: int) -> Ints:
    """Label → new label, with each pair swapped; its own inverse."""
    table = np.arange(classes)
    for first, second in pairs:
        table[first], table[second] = second, first
    return table


def _pairs(sets: ClassSets, attack: AttackSettings, seed: int, client: int) -> list[tuple[int, int]]:
    """The pairs of classes that an attacker swaps."""
    if attack.pairing == "random":
        rng = generator(seed, "pairing", client)
        sets = tuple(tuple(rng.permutation(chosen).tolist()) for chosen in sets)
    return [pair for chosen in sets for pair in zip(chosen[::2], chosen[1::2], strict=True)]
