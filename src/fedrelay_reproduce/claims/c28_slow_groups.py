"""FedAsyncSeq tolerates slow groups.

Source: Silvi et al., IEEE Access 2024, figure 5

In short: a drawing

Published: Figure 5 explains that models need not wait for slow groups; no figures are given.

Holds if: With devices and links that differ widely FedAsyncSeq comes to 70 % of centralised accuracy in less virtual
time than FedSeq.

Scale small: As claim 1 with 100 rounds and half of the clients a round, so that five models travel side by side; speeds
and bandwidths are log-normal with σ = 1.

Reading (small, inconclusive): FedAsyncSeq takes 33 virtual seconds and FedSeq 31, and seeds differ by 3 to 7; a
difference of 12 could have been detected. The target is low: FedSeq reaches it in its eighth round, FedAsyncSeq before
or just after its first merge, which is after ten. Higher targets speak for FedAsyncSeq: it comes to 75 % first with all
three seeds, 16 seconds [−4, 36] sooner, and to 80 % with two of three. The paper gives no figure to compare with.

Shows: accuracy_last, virtual_seconds, client_updates
"""

from fedrelay_reproduce import Check, Claim, Condition, Results, time_to
from fedrelay_reproduce.claims.c01_fedseq_against_fedavg import ALPHA_0
from fedrelay_reproduce.claims.c02_speed_up import CENTRALISED

UNEQUAL = ALPHA_0.but(
    "28/unequal",
    {
        "methods": ["fedseq", "fedasyncseq"],
        "clock": {"profile": "log-normal", "speed_sigma": 1, "link_sigma": 1},
        "rounds": 100,
        "fraction": 0.5,
    },
    smoke={"rounds": 20},
    full={"rounds": 10000},
)


def criterion(unequal: Results, centralised: Results) -> list[Condition]:
    target = 0.7 * centralised["centralized"].accuracy_last
    asynchronous, synchronous = (time_to(unequal[name], target) for name in ("fedasyncseq", "fedseq"))
    return [Check("FedAsyncSeq needs less virtual time than FedSeq", asynchronous, "<", synchronous)]


CLAIM = Claim(28, __doc__, criterion, {"unequal": UNEQUAL, "centralised": CENTRALISED})
