"""Label flipping: attackers exchange the labels of some classes of their train samples.

Paper: A. Silvi, A. Rizzardi, D. Caldarola, B. Caputo, M. Ciccone. Accelerating Federated Learning via Sequential
Training of Grouped Heterogeneous Clients. IEEE Access 2024.

Rule: an attacker relabels s as t and t as s for every pair (s, t), once, before the first round, and is honest in all
else. Fixed pairing: all attackers exchange the same pairs, neighbours in the list of classes. Random: every attacker
draws its own pairs. A client is suitable if it holds a sample of these classes. Where there are groups,
max(1, ⌊L_S·groups⌋) of them are drawn, and in each max(1, ⌊L·suitable clients⌋) attackers; where there are none, or
where they change from round to round, max(1, ⌊L_S·L·suitable clients⌋) of all.

Deviations: of CIFAR-100 the paper swaps 20 classes of different superclasses (`extra-sc`), or 4 classes in each of 5
superclasses, inside them (`intra-sc`), without naming them: here the first class of every superclass, and the first
four classes of the first five. Groups are formed before labels are exchanged. A drawn group without suitable clients
has no attacker. The authors' program draws positions among suitable clients and applies them to all; ours does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fedrelay.data.federation import Federation, Samples, digest
from fedrelay.data.partition import Ints
from fedrelay.data.wrapper import FederationWrapper
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
"""Sets of classes; labels are exchanged within a set."""


def _members(superclass: int) -> tuple[int, ...]:
    return tuple(each for each, above in enumerate(CIFAR100_SUPERCLASSES) if above == superclass)


SWAP_LISTS: dict[str, ClassSets] = {
    "extra-sc": (tuple(_members(superclass)[0] for superclass in range(20)),),
    "intra-sc": tuple(_members(superclass)[:4] for superclass in range(5)),
}
"""The lists of classes that have a name; both are of CIFAR-100."""


@dataclass(frozen=True, repr=False)
class FlippedFederation(FederationWrapper):
    """A federation in which attackers have exchanged labels; `tables` holds the new label of each, by attacker."""

    tables: Mapping[int, Ints]

    def samples(self, client: int) -> Samples:
        """The samples of one client, an attacker's with its own labels."""
        x, y = self.members.samples(client)
        if client not in self.tables:
            return Samples(x, y)
        table = torch.from_numpy(self.tables[client])
        return Samples(x, torch.where(y >= 0, table[y.clamp(min=0)], y))  # ignored labels are negative

    def histogram(self, client: int) -> Ints:
        """How many labels of every class a client has."""
        counts = self.members.histogram(client)
        # A table is its own inverse, so what has become of a class comes from its partner.
        return counts[self.tables[client]] if client in self.tables else counts

    def fingerprint(self) -> str:
        """A digest that differs from the members' own."""
        chosen = sorted(self.tables)
        return digest("label-flip", self.members.fingerprint(), chosen, *(self.tables[each] for each in chosen))

    @cached_property
    def flips(self) -> int:
        """How many labels were changed."""
        return sum(
            int(self.members.histogram(client)[table != np.arange(len(table))].sum())
            for client, table in self.tables.items()
        )

    def facts(self) -> dict[str, Any]:
        """Who attacks, and how much."""
        return {"name": "label-flip", "attackers": sorted(self.tables), "flips": self.flips}


def class_sets(attack: AttackSettings) -> ClassSets:
    """The classes whose labels are exchanged, in sets within which that happens."""
    if attack.name == "none":
        return ()
    return SWAP_LISTS[attack.swap_list] if attack.swap_list is not None else (attack.swap,)


def swapped_classes(attack: AttackSettings) -> tuple[int, ...]:
    """All classes whose labels are exchanged."""
    return tuple(sorted(each for chosen in class_sets(attack) for each in chosen))


def check_attack(attack: AttackSettings, federation: Federation) -> None:
    """See whether the data have the classes to be swapped."""
    if attack.swap_list is not None and federation.classes != len(CIFAR100_SUPERCLASSES):
        raise SpecError(
            f"attack.swap_list: {attack.swap_list!r} names classes of CIFAR-100, {federation.name!r} has "
            f"{federation.classes} classes; name them in attack.swap"
        )
    if beyond := [each for each in swapped_classes(attack) if each >= federation.classes]:
        raise SpecError(
            f"attack.swap: {federation.name!r} has the classes 0 … {federation.classes - 1}, there is no {beyond[0]}"
        )


def flip_labels(federation: Federation, attack: AttackSettings, groups: Groups, seed: int) -> FlippedFederation:
    """The federation with labels exchanged by attackers that are drawn from the groups, or from all clients."""
    sets = class_sets(attack)
    tables = {
        client: exchange(_pairs(sets, attack, seed, client), federation.classes)
        for client in draw_attackers(federation, attack, groups, seed)
    }
    return FlippedFederation(federation, tables)


def draw_attackers(federation: Federation, attack: AttackSettings, groups: Groups, seed: int) -> tuple[int, ...]:
    """Who attacks."""
    classes = list(swapped_classes(attack))

    def suitable(clients: Sequence[int]) -> list[int]:
        return [client for client in clients if federation.histogram(client)[classes].sum()]

    if groups:
        count = sampled_count(len(groups), attack.group_share)
        drawn = generator(seed, "attacked-groups").choice(len(groups), count, replace=False).tolist()
        pools = {group: (suitable(groups[group]), attack.client_share) for group in drawn}
    else:
        pools = {0: (suitable(range(federation.clients)), attack.group_share * attack.client_share)}
    attackers = [
        int(client)
        for group, (pool, share) in sorted(pools.items())
        if pool
        for client in generator(seed, "attackers", group).choice(pool, sampled_count(len(pool), share), replace=False)
    ]
    if not attackers:
        raise DataError(f"attack.swap: no client that could attack holds samples of the classes {classes}")
    return tuple(sorted(attackers))


def exchange(pairs: Sequence[tuple[int, int]], classes: int) -> Ints:
    """Label → label, with the two of every pair exchanged; its own inverse."""
    table = np.arange(classes)
    for one, other in pairs:
        table[one], table[other] = other, one
    return table


def _pairs(sets: ClassSets, attack: AttackSettings, seed: int, client: int) -> list[tuple[int, int]]:
    """Which classes an attacker exchanges."""
    if attack.pairing == "random":
        rng = generator(seed, "pairing", client)
        sets = tuple(tuple(rng.permutation(chosen).tolist()) for chosen in sets)
    return [pair for chosen in sets for pair in zip(chosen[::2], chosen[1::2], strict=True)]
