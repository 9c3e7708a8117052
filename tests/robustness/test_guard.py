"""The guard: what it refuses, what it clips, and hops that are rolled back."""

from __future__ import annotations

import math

import pytest
import torch

from fedrelay.experiment.spec import GuardSettings
from fedrelay.local.hop_context import HopContext
from fedrelay.robustness.guard import (
    HopSnapshot,
    TypicalHop,
    all_finite,
    cap_shares,
    check_not_zeroed,
    check_others,
    check_weights,
    clip_updates,
    max_abs_weights,
)
from fedrelay.routes.arrival import Arrival, HopReport

NAN, INF = math.nan, math.inf


def test_the_peak_is_the_largest_absolute_value_of_each_model():
    models = torch.tensor([[1.0, -3.0], [2.0, 0.5], [NAN, 1.0], [-INF, 1.0]])
    first, second, third, fourth = max_abs_weights(models)
    assert (first, second, fourth) == (3.0, 2.0, INF)
    assert math.isnan(third)
    assert max_abs_weights(torch.tensor([1.0, -4.0])) == [4.0]


def test_one_value_that_is_not_finite_is_found_anywhere():
    largest = torch.finfo(torch.float32).max
    assert all_finite(torch.tensor([[largest, 0.0], [-largest, 1.0]]))  # whose difference is infinite
    for value in (NAN, INF, -INF):
        for place in range(3):
            model = torch.tensor([largest, 0.0, -largest])
            model[place] = value
            assert not all_finite(model)


@pytest.mark.parametrize(
    ("peak", "found"),
    [
        (1.0, ""),
        (9.0, ""),
        (9.5, "weights beyond 9"),
        (NAN, "non-finite weights"),
        (INF, "non-finite weights"),
    ],
)
def test_faults_are_found(peak, found):
    assert check_weights(GuardSettings(largest=9.0), peak) == found


def test_faults_of_states_and_payloads_are_named():
    fine, bad = torch.tensor([1e30]), torch.tensor([1.0, NAN])
    assert check_others({"client state": {"kept": fine}, "payload": {}}) == ""
    found = check_others({"client state": {"kept": fine}, "payload": {"sum": fine, "mean": bad}})
    assert found == "non-finite values in the payload 'mean'"


def test_a_model_of_zeros_made_from_another_is_refused_where_anything_is():
    skip, something = GuardSettings(on_divergence="skip"), torch.tensor([0.0, 1.0])
    assert check_not_zeroed(skip, 0.0, something) == "nothing but zeros"
    assert not check_not_zeroed(skip, 0.5, something)
    assert not check_not_zeroed(skip, 0.0, torch.zeros(2))
    assert not check_not_zeroed(GuardSettings(), 0.0, something)


def test_long_updates_are_clipped_and_others_left_alone():
    received = torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    models = torch.tensor([[4.0, 5.0], [0.6, 0.8], [NAN, 1.0]])
    norms = clip_updates(models, received, torch.full((3, 1), 2.0))
    torch.testing.assert_close(models[:2], torch.tensor([[1 + 3 * 2 / 5, 1 + 4 * 2 / 5], [0.6, 0.8]]))
    assert norms[:2].flatten().tolist() == [5.0, 1.0]
    assert not models[2].isfinite().all()
    alone = torch.tensor([3.0, 4.0])
    assert float(clip_updates(alone, torch.zeros(2), torch.tensor([INF]))) == 5.0
    assert alone.tolist() == [3.0, 4.0]


def test_the_typical_norm_is_the_median_of_accepted_updates():
    hops = [HopReport(1, 1, 0.0, update_norm=norm) for norm in (1.0, 100.0, 3.0)]
    refused = HopReport(0, 0, 0.0, refused="non-finite weights", update_norm=1e9)
    assert TypicalHop(7.0).updated([*hops, refused]) == TypicalHop(3.0)
    assert TypicalHop(7.0).updated(hops[:2]) == TypicalHop(50.5)
    assert TypicalHop(7.0).updated([refused]) == TypicalHop(7.0)


def test_the_typical_increase_is_the_median_of_all_models_that_were_evaluated():
    evaluated = [HopReport(1, 1, 0.0, public_loss_increase=increase) for increase in (-0.5, 0.25)]
    refused = HopReport(0, 0, 0.0, refused="a higher loss on the public set", public_loss_increase=4.0)
    unseen = HopReport(0, 0, 0.0, refused="non-finite weights")
    assert TypicalHop(7.0, 0.5).updated([*evaluated, refused, unseen]) == TypicalHop(7.0, 0.25)
    assert TypicalHop(7.0, 0.5).updated([unseen]) == TypicalHop(7.0, 0.5)


def test_a_hop_is_rolled_back_even_where_it_overwrote_its_inputs():
    row, state, payload = torch.tensor([1.0, 2.0]), torch.tensor([3.0]), torch.tensor([4.0])
    context = HopContext(row, row, client_state={"c": state}, new_client_state={"c": state}, payload={"sum": payload})
    before = HopSnapshot.of(context)
    for tensor in (row, state, payload):
        tensor.fill_(NAN)
    before.restore(context, row)
    assert (row.tolist(), state.tolist(), payload.tolist()) == ([1.0, 2.0], [3.0], [4.0])


@pytest.mark.parametrize(
    ("claimed", "share", "counted"),
    [
        ([30, 30, 40], 0.5, [30, 30, 40]),
        ([10**11, 30, 30], 0.5, [60, 30, 30]),
        ([30, 10**11, 30], 0.4, [30, 40, 30]),
        ([10**11, 10**12, 30, 30], 0.4, [120, 120, 30, 30]),
        ([100, 20, 20, 20], 0.4, [40, 20, 20, 20]),
        ([10**11, 30, 40, 50], 0.2, [30, 30, 30, 30]),  # five routes are needed
        ([10**11, 0, 0], 0.5, [10**11, 0, 0]),  # routes without samples count for nothing in any case
        ([7], 0.5, [7]),
        ([0, 0], 0.5, [0, 0]),
    ],
)
def test_no_route_counts_for_more_than_its_share_of_all_samples(claimed, share, counted):
    arrivals = [
        Arrival(route, (route,), torch.zeros(1), (HopReport(samples, 1, 0.0),)) for route, samples in enumerate(claimed)
    ]
    assert [arrival.samples for arrival in cap_shares(arrivals, share)] == counted


def test_the_hops_of_a_capped_chain_keep_their_proportions():
    chain = Arrival(0, (0, 1, 2, 3), torch.zeros(1), tuple(HopReport(n, 1, 0.0) for n in (30, 60, 0, 10)))
    other = Arrival(1, (4,), torch.zeros(1), (HopReport(20, 1, 0.0),))
    capped, same = cap_shares([chain, other], 0.5)
    assert [hop.samples for hop in capped.hops] == [6, 12, 0, 2]
    assert same is other
