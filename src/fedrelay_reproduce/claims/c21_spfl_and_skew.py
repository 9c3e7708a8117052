"""SPFL gains the more, the more clients differ.

Source: Liang et al., SPFL, NeurIPS 2025

In short: +8.3, +7.6, +6.5, +3.4, +1.9

Published: Gain over FedAvg with Dirichlet .1, .2, .5, 1 and 100: 8.3, 7.6, 6.5, 3.4 and 1.9 points.

Holds if: The gain over FedAvg falls from Dirichlet .1 to .5 to 100.

Scale small: As claim 19, from scratch. SPFL does ten times the work; claim 20 has the control for Dirichlet .1, claim
19 that for .5.

Shows: accuracy_last, accuracy_best, client_updates, virtual_seconds

Reading (small, does not hold): From scratch and after ten rounds the gains are 28, 26 and 42 points. They show the
effect of ten times the work while FedAvg has hardly begun to learn (36, 50 and 37 %), not the effect of skew; in the
paper FedAvg had 100 rounds before. Against FedAvg with ten epochs, which does as much work, SPFL gains about 2 points
with Dirichlet .1 (claim 20, where seeds differ by 6 to 9), loses .3 with .5 and gains .1 with 100 (78.9 against 78.8
%, three runs beside these): if skew leaves anything to gain, it is little.
"""

from fedrelay_reproduce import Check, Claim, Condition, Number, Results
from fedrelay_reproduce.claims.c19_spfl import SCRATCH

STRONG = SCRATCH.but("21/strong", {"methods": ["fedavg", "spfl"], "data": {"alpha": 0.1}})

EVEN = SCRATCH.but("21/even", {"methods": ["fedavg", "spfl"], "data": {"alpha": 100}})


def criterion(strong: Results, half: Results, even: Results) -> list[Condition]:
    def gain(results: Results) -> Number:
        return results["spfl"].accuracy_last - results["fedavg"].accuracy_last

    return [
        Check("the gain is larger with Dirichlet .1 than with .5", gain(strong), ">", gain(half)),
        Check("the gain is larger with Dirichlet .5 than with 100", gain(half), ">", gain(even)),
    ]


CLAIM = Claim(21, __doc__, criterion, {"strong": STRONG, "half": SCRATCH, "even": EVEN})
