"""The guard: what it finds, what it shortens, and turns that are taken back."""

from __future__ import annotations

import math

import pytest
import torch

from fedrelay.experiment.spec import GuardSettings
from fedrelay.local.arrival import HopReport
from fedrelay.local.hop_context import HopContext
from fedrelay.robustness.guard import HopSnapshot, TypicalHop, emptied, fault_in, peaks, shorten

NAN, INF = math.nan, math.inf


def test_the_peak_is_the_largest_absolute_value_of_each_model():
    models = torch.tensor([[1.0, -3.0], [2.0, 0.5], [NAN, 1.0], [-INF, 1.0]])
    first, second, third, fourth = peaks(models)
    assert (first, second, fourth) == (3.0, 2.0, INF)
    assert math.isnan(third)
    assert peaks(torch.tensor([1.0, -4.0])) == [4.0]


@pytest.mark.parametrize(
    ("peak", "others", "found"),
    [
        (1.0, [], ""),
        (9.0, [], ""),
        (9.5, [], "weights beyond 9"),
        (NAN, [], "non-finite weights"),
        (INF, [], "non-finite weights"),
        (1.0, [torch.tensor([1.0, NAN])], "non-finite weights"),
        (1.0, [torch.tensor([1e30])], ""),
    ],
)
def test_faults_are_found(peak, others, found):
    assert fault_in(GuardSettings(largest=9.0), peak, others) == found


def test_a_model_of_zeros_made_from_another_is_refused_where_anything_is():
    skip, something = GuardSettings(on_divergence="skip"), torch.tensor([0.0, 1.0])
    assert emptied(skip, 0.0, something) == "nothing but zeros"
    assert not emptied(skip, 0.5, something)
    assert not emptied(skip, 0.0, torch.zeros(2))
    assert not emptied(GuardSettings(), 0.0, something)


def test_long_updates_are_shortened_and_others_left_alone():
    recv = torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    models = torch.tensor([[4.0, 5.0], [0.6, 0.8], [NAN, 1.0]])
    lengths = shorten(models, HopContext(recv, recv, longest=torch.full((3, 1), 2.0)))
    torch.testing.assert_close(models[:2], torch.tensor([[1 + 3 * 2 / 5, 1 + 4 * 2 / 5], [0.6, 0.8]]))
    assert lengths[:2].flatten().tolist() == [5.0, 1.0]
    assert not models[2].isfinite().all()
    alone = torch.tensor([3.0, 4.0])
    assert float(shorten(alone, HopContext(torch.zeros(2), torch.zeros(2)))) == 5.0
    assert alone.tolist() == [3.0, 4.0]


def test_the_usual_length_is_the_median_of_accepted_updates():
    hops = [HopReport(1, 1, 0.0, length=length) for length in (1.0, 100.0, 3.0)]
    refused = HopReport(0, 0, 0.0, refused="non-finite weights", length=1e9)
    assert TypicalHop(7.0).after([*hops, refused]) == TypicalHop(3.0)
    assert TypicalHop(7.0).after(hops[:2]) == TypicalHop(50.5)
    assert TypicalHop(7.0).after([refused]) == TypicalHop(7.0)


def test_the_usual_rise_is_the_median_of_all_models_that_were_judged():
    judged = [HopReport(1, 1, 0.0, rise=rise) for rise in (-0.5, 0.25)]
    refused = HopReport(0, 0, 0.0, refused="a higher loss on the public set", rise=4.0)
    unseen = HopReport(0, 0, 0.0, refused="non-finite weights")
    assert TypicalHop(7.0, 0.5).after([*judged, refused, unseen]) == TypicalHop(7.0, 0.25)
    assert TypicalHop(7.0, 0.5).after([unseen]) == TypicalHop(7.0, 0.5)


def test_a_turn_is_taken_back_even_where_it_wrote_to_what_it_had_read():
    row, kept, payload = torch.tensor([1.0, 2.0]), torch.tensor([3.0]), torch.tensor([4.0])
    visit = HopContext(row, row, state={"c": kept}, kept={"c": kept}, payload={"sum": payload})
    before = HopSnapshot.of(visit)
    for tensor in (row, kept, payload):
        tensor.fill_(NAN)
    before.restore(visit, row)
    assert (row.tolist(), kept.tolist(), payload.tolist()) == ([1.0, 2.0], [3.0], [4.0])
