from __future__ import annotations

import torch

from fedrelay.routes.arrival import Arrival, HopReport


def test_an_arrival_sums_up_its_hops():
    hops = [HopReport(10, 2, 1.0), HopReport(30, 6, 3.0, True)]
    inputs = Arrival(4, (7, 9), torch.zeros(1), tuple(hops))
    assert (inputs.samples, inputs.steps, inputs.loss) == (40, 8, 2.5)
