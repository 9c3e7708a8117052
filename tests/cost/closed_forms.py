"""What rounds cost in theory: FedGSP's model of time and traffic, and how often each method sends a model.

Paper: S. Zeng et al., FedGSP, DASFAA 2022, equations 15 to 17, with f(r) groups of K clients in round r, of which a
share κ takes part, n samples per client and e epochs:

    T_comp = Σ_r [ N_calc/T · n·e·K/min(K, f(r)) + N_aggr/T · max(0, κ·f(r) − 1) ]
    T_comm = 8·κ·K·M·R·(1/R_in + 1/R_out)
    D_comm = 2·κ·K·M·R

Groups wait for the longest chain, so a round is described by its number of groups and that chain's samples; for equal
chains these are n·K/min(K, f(r)). T_comm has all transfers come one after another, as if they shared one link.

This is the closed form, to check others by. For any method and any devices the virtual clock gives the same three
numbers from the plan: `computing_seconds`, `communicating_seconds`, and the bytes of the ledger.

Units: the paper's 25.2 MB are 25.2·2²⁰ bytes of a model with 6 603 710 parameters, but its figures follow from one
"mega" for bytes and bits alike; 25.2·10⁶ bytes and 567·10⁶ bit/s give them.

The counts of transfers are those of table 3 in A. Silvi et al., IEEE Access 2024, put right and extended. They are
closed forms, to check the ledger by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class RoundShape(NamedTuple):
    """What the time of a round depends on."""

    groups: float
    """f(r), the number of groups there are, whether or not they take part."""

    longest: float
    """The samples of the longest chain, all epochs of a client counted as one."""


def equal_chains(groups: Iterable[int], clients: int, samples: float) -> list[RoundShape]:
    """Rounds with given numbers of groups; all clients have the same number of samples."""
    return [RoundShape(count, samples * clients / min(clients, count)) for count in groups]


@dataclass(frozen=True)
class FedGspCosts:
    """FedGSP's theoretical cost; the defaults are the paper's."""

    clients: int = 368
    fraction: float = 0.3
    """κ, the share of groups that take part in a round."""

    epochs: int = 1
    sample_flops: float = 96e6
    merge_flops: float = 6.3e6
    """N_calc for training on one sample, N_aggr for adding one model to a mean."""

    flops: float = 567e9
    """FLOP/s of every device."""

    model_bytes: float = 25.2e6
    bits_in: float = 567e6
    bits_out: float = 567e6
    """The model's size, and the bandwidth of the server in bit/s."""

    def computing_seconds(self, rounds: Iterable[RoundShape]) -> float:
        """T_comp: training of the longest chain and merging, summed over rounds."""
        return sum(
            self.sample_flops / self.flops * self.epochs * longest
            + self.merge_flops / self.flops * max(0.0, self.fraction * groups - 1)
            for groups, longest in rounds
        )

    def communicating_seconds(self, rounds: int) -> float:
        """T_comm: the time of all transfers of a number of rounds, one after another."""
        return 8 * self.fraction * self.clients * self.model_bytes * rounds * (1 / self.bits_in + 1 / self.bits_out)

    def traffic_bytes(self, rounds: int) -> float:
        """D_comm: the bytes of a number of rounds if a manager relays every hop."""
        return 2 * self.fraction * self.clients * self.model_bytes * rounds


class Exchanges(NamedTuple):
    """How many model-sized payloads travel in a round, by kind."""

    s2c: int
    c2s: int
    c2c: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


def parallel_exchanges(clients: int, payloads: int = 1) -> Exchanges:
    """FedAvg and its relatives; SCAFFOLD and FedDC have two payloads."""
    return Exchanges(payloads * clients, payloads * clients, 0)


def chain_exchanges(sizes: Sequence[int]) -> Exchanges:
    """FedSeq, FedSeqInter, FedAsyncSeq and FedSeq2Par: groups of these sizes, each gone through once."""
    return Exchanges(len(sizes), len(sizes), sum(sizes) - len(sizes))


def ring_exchanges(clients: int) -> Exchanges:
    """FedCyclic: one chain through all that take part."""
    return chain_exchanges([clients])


def relayed_exchanges(clients: int) -> Exchanges:
    """FedGSP and a cycle of WFSL, where every hop comes from the server and goes back; so does WFSL's one profiling."""
    return Exchanges(clients, clients, 0)


def rotation_exchanges(clients: int) -> Exchanges:
    """SPFL: one chain through all clients for each of them."""
    return chain_exchanges([clients] * clients)


def star_exchanges(clients: int) -> Exchanges:
    """FedStar: every client sends to every other client."""
    return Exchanges(0, 0, clients * (clients - 1))


def fisher_ring_exchanges(clients: int, *, first: bool = False) -> Exchanges:
    """A ring with EWC: Fisher information beside the model, but for the very first download."""
    return Exchanges(1 if first else 2, 2, 2 * (clients - 1))


def paper_cost(clients: int) -> int:
    """The transfers in a round of SPFL that its paper's cost tables imply, M(M + 2), for comparison with them only.

    Counted one by one there are M(M + 1), as in `rotation_exchanges`.
    """
    return clients * (clients + 2)
