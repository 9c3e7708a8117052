"""What methods send in a round follows closed forms.

Source: Silvi et al., IEEE Access 2024, table 3; Liang et al., SPFL, NeurIPS 2025, cost tables; Zeng et al., FedGSP,
DASFAA 2022

In short: 2m, 4m, m+1, G+ΣK, 2κK

Published: Transfers in a round with m clients or G groups: FedAvg 2m, SCAFFOLD 4m, FedCyclic m + 1, FedSeq G + ΣK_S,
FedGSP 2κK, WFSL 2m. SPFL's table of costs for ten clients: 21.042 GB in 15 rounds with a model of 11.69 MB. LEAF's CNN
has 6.3 M parameters (binary).

Holds if: The numbers of transfers that we count agree exactly with these forms, SPFL's with M(M + 1), which is what its
procedure sends: to M clients, from each to the next M − 1 times, and back. Its table amounts to M(M + 2). Our copy of
LEAF's CNN has 6,603,710 parameters. All of these are checks of arithmetic.

Scale small: The second round of each method, planned and counted; nothing is trained.

Reading (small, holds): Nothing here could have come out otherwise, unless our counting were wrong. SPFL's own table
counts ten transfers a round more than its procedure has; we count what is sent.

Shows: hops, chains, s2c, c2s, c2c, transfers
"""

from collections.abc import Callable
from dataclasses import replace

from fedrelay_reproduce import Check, Claim, ClaimExperiment, Condition, Measured, Number, Results

LEDGER = ClaimExperiment(
    "25/ledger",
    {
        "methods": [
            "fedavg",
            "scaffold",
            "fedcyclic",
            {"method": "fedseq", "grouping": {"max_clients": 10, "min_samples": 100000}},
            {"method": "fedseqinter", "grouping": {"max_clients": 10, "min_samples": 100000}},
            {"method": "fedseq2par", "route": {"beta": 10}},
            {"method": "fedgsp", "fraction": 0.3, "route": {"beta": 10}},
            {"method": "wfsl", "warmup": {"cycles": 3}},
            {"method": "spfl", "fraction": 0.1},
        ],
        "data": {"name": "digits", "clients": 100, "alpha": 0},
        "rounds": 10,
    },
    kind="transfers",
)

LEAF = ClaimExperiment(
    "25/leaf",
    {"methods": ["fedavg"], "data": {"name": "femnist", "clients": 20}, "model": {"name": "leaf-cnn"}},
    kind="transfers",
)


def criterion(ledger: Results, leaf: Results) -> list[Condition]:
    def sends(text: str, method: str, expected: Callable[[Measured], Number]) -> Check:
        return Check(text, ledger[method].transfers, "==", expected(ledger[method]))

    checks = [
        sends("FedAvg sends 2m", "fedavg", lambda m: 2 * m.hops),
        sends("SCAFFOLD sends 4m", "scaffold", lambda m: 4 * m.hops),
        sends("FedCyclic sends m + 1", "fedcyclic", lambda m: m.hops + 1),
        sends("FedSeq sends G + m", "fedseq", lambda m: m.chains + m.hops),
        sends("FedSeqInter sends G + m", "fedseqinter", lambda m: m.chains + m.hops),
        sends("FedSeq2Par sends G + m", "fedseq2par", lambda m: m.chains + m.hops),
        sends("FedGSP sends 2m", "fedgsp", lambda m: 2 * m.hops),
        Check("FedGSP sends 2κK", ledger["fedgsp"].transfers, "==", 2 * 0.3 * 100),
        sends("WFSL sends 2m", "wfsl", lambda m: 2 * m.hops),
        sends("SPFL sends M(M + 1)", "spfl", lambda m: m.chains * (m.chains + 1)),
        Check("SPFL's own table amounts to M(M + 2)", abs(21042 / 15 / 11.69 - 10 * (10 + 2)), "<", 0.05),
        Check("LEAF's CNN has 6,603,710 parameters", leaf["fedavg"].parameters, "==", 6603710),
    ]
    return [replace(check, arithmetic=True) for check in checks]


CLAIM = Claim(25, __doc__, criterion, {"ledger": LEDGER, "leaf": LEAF}, seeds={"small": 1, "full": 1})
