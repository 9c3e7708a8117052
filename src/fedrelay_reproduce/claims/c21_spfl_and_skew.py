"""SPFL gains the more, the more clients differ.

Source: Liang et al., SPFL, NeurIPS 2025

In short: +8.3, +7.6, +6.5, +3.4, +1.9

Published: Gain over FedAvg with Dirichlet .1, .2, .5, 1 and 100: 8.3, 7.6, 6.5, 3.4 and 1.9 points.

Holds if: The gain of SPFL after FedAvg over as many rounds of FedAvg is larger with Dirichlet .1 than with 100, larger
with .5 than with 100, and falls over all five (the contrast with weights 2, 1, 0, −1, −2 is positive).

Scale small: As claim 19 with each Dirichlet parameter.

Scale medium: As claim 19 with each Dirichlet parameter; learning rates are those tuned with .5.

Shows: accuracy_last, accuracy_best, client_updates, virtual_seconds
"""

from fedrelay_reproduce import Check, Claim, Condition, Number, Results
from fedrelay_reproduce.claims.c19_spfl import WARM

STRONG, TWO_TENTHS, ONE, EVEN = (
    WARM.but(f"21/{folder}", {"data": {"alpha": alpha}}, medium={})
    for folder, alpha in {"strong": 0.1, "two_tenths": 0.2, "one": 1, "even": 100}.items()
)


def criterion(strong: Results, two_tenths: Results, half: Results, one: Results, even: Results) -> list[Condition]:
    def gain(results: Results) -> Number:
        return results["spfl"].accuracy_last - results["fedavg"].accuracy_last

    trend = 2 * gain(strong) + gain(two_tenths) - gain(one) - 2 * gain(even)
    return [
        Check("the gain is larger with Dirichlet .1 than with 100", gain(strong), ">", gain(even)),
        Check("the gain is larger with Dirichlet .5 than with 100", gain(half), ">", gain(even)),
        Check("over all five, the gain falls (contrast 2, 1, 0, −1, −2)", trend, ">", 0),
    ]


CLAIM = Claim(
    21,
    __doc__,
    criterion,
    {"strong": STRONG, "two_tenths": TWO_TENTHS, "half": WARM, "one": ONE, "even": EVEN},
)
