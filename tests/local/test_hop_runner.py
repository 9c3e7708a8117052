"""A hop from start to end: what is tampered with, refused and observed."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch

from fedrelay.data.public_samples import with_public
from fedrelay.engines.base import RoundInputs
from fedrelay.engines.local.simulation_engine import start_local
from fedrelay.errors import DivergedError, SpecError
from fedrelay.experiment.spec import GuardSettings, TrainSettings
from fedrelay.local.client_state import ClientStateStore
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.control_variates import ControlVariates
from fedrelay.local.terms.proximal_penalty import ProximalPenalty
from fedrelay.local.terms.tensor_declarations import ClientState, Payload
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.robustness.guard import TypicalHop
from fedrelay.routes.execution_overlay import ExecutionOverlay, TamperedHop
from fedrelay.routes.plan import RoundPlan, Route

SKIP = GuardSettings(on_divergence="skip")


def job_of(federation, module, guard=SKIP, terms=(), lanes=1):
    return TrainingJob(
        module, FlatLayout.of(module), federation, TrainSettings(batch_size=2), terms, 3, lanes, guard=guard
    )


def run_round(job, plan, *tampers, workers=1, client_states=None, typical=0.0, rise=0.0):
    engine = start_local(job, workers, client_states)
    try:
        arrivals = engine.run_round(
            plan,
            ExecutionOverlay(tampers=tampers),
            RoundInputs(job.layout.flatten(job.module), typical_hop=TypicalHop(typical, rise)),
        )
        engine.commit_client_state()
        return [
            (
                arrival.weights.clone(),
                arrival.hops,
                {name: tensor.clone() for name, tensor in arrival.payload.items()},
                {index: tensor.clone() for index, tensor in arrival.received_models.items()},
            )
            for arrival in arrivals
        ]
    finally:
        engine.close()


@pytest.mark.parametrize("what", ["nan", "inf", "shape", "explode"])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("lanes", [1, 4])
def test_a_chain_goes_on_from_the_last_good_model(toy, linear, what, workers, lanes):
    job = job_of(toy, linear, lanes=lanes)
    plan, tamper = RoundPlan(1, (Route((0, 1, 2)), Route((3, 4)))), TamperedHop(0, 1, what, 1e12)
    (spoilt, hops, _, _), (beside, _, _, _) = run_round(job, plan, tamper, workers=workers)
    assert [bool(hop.refused) for hop in hops] == [False, True, False]
    assert (hops[1].samples, hops[1].steps) == (0, 0)
    assert spoilt.isfinite().all()
    # The third client trained what the first had made: same place in the route, so the same order of samples.
    first = run_round(job, RoundPlan(1, (Route((0,)),)), workers=workers)[0][0]
    later = job_of(toy, linear, lanes=lanes)
    engine = start_local(later, 1)
    tapped = ExecutionOverlay(tampers=(tamper,), taps=((0, 2),))
    seen = engine.run_round(plan, tapped, RoundInputs(job.layout.flatten(linear)))[0].received_models[2]
    torch.testing.assert_close(seen, first, rtol=1e-6, atol=1e-7)
    undisturbed = run_round(job, plan, workers=workers)[1][0]
    torch.testing.assert_close(beside, undisturbed, rtol=0, atol=0)


def test_without_leave_to_skip_the_run_ends(toy, linear):
    job = job_of(toy, linear, GuardSettings())
    plan, tamper = RoundPlan(2, (Route((0, 1)),)), TamperedHop(0, 1, "nan")
    with pytest.raises(DivergedError, match=r"round 2: the model left client 1 \(route 0, hop 1\) with non-finite"):
        run_round(job, plan, tamper)


@pytest.mark.parametrize(
    ("what", "factor", "expected"),
    [
        ("zero", 1.0, lambda received, model: 0 * model),
        ("sign-flip", 2.0, lambda received, model: received - 2 * (model - received)),
        ("replace", 3.0, lambda received, model: received + 3 * (model - received)),
        ("explode", 10.0, lambda received, model: 10 * model),
    ],
)
def test_what_nobody_looks_for_is_handed_on(toy, linear, what, factor, expected):
    job = job_of(toy, linear, GuardSettings())
    honest = run_round(job, RoundPlan(1, (Route((4,)),)))[0][0]
    found, hops, _, _ = run_round(job, RoundPlan(1, (Route((4,)),)), TamperedHop(0, 0, what, factor))[0]
    torch.testing.assert_close(found, expected(job.layout.flatten(linear), honest))
    assert not hops[0].refused


@pytest.mark.parametrize("norm", [None, 0.5], ids=["", "before it is shortened"])
def test_a_model_of_zeros_is_refused_where_anything_is(toy, linear, norm):
    job = job_of(toy, linear, GuardSettings(on_divergence="skip", norm=norm))
    plan, tamper = RoundPlan(1, (Route((0, 4)),)), TamperedHop(0, 1, "zero")
    found, hops, _, _ = run_round(job, plan, tamper, typical=1.0)[0]
    assert hops[1].refused == "nothing but zeros"
    assert torch.equal(found, run_round(job, RoundPlan(1, (Route((0,)),)), typical=1.0)[0][0])


def test_what_is_too_large_is_refused_not_shortened(toy, linear):
    job = job_of(toy, linear, GuardSettings(on_divergence="skip", norm=0.5, largest=100.0))
    plan, tamper = RoundPlan(1, (Route((4,)),)), TamperedHop(0, 0, "explode", 1e4)
    found, (hop,), _, _ = run_round(job, plan, tamper, typical=1.0)[0]
    assert hop.refused == "weights beyond 100"
    assert torch.equal(found, job.layout.flatten(linear))


def test_a_long_update_is_shortened(toy, linear):
    job = job_of(toy, linear, GuardSettings(norm=1.5))
    start = job.layout.flatten(linear)
    plan, tamper = RoundPlan(1, (Route((4,)),)), TamperedHop(0, 0, "replace", 1000.0)
    found, (hop,), _, _ = run_round(job, plan, tamper, typical=0.1)[0]
    assert hop.update_clipped
    assert float((found - start).norm()) == pytest.approx(0.15, rel=1e-4)
    assert hop.update_norm > 1


def test_a_loss_may_rise_by_the_tolerance_beyond_what_is_usual(toy, linear):
    federation = with_public(toy, 2, 0)
    plan, tamper = RoundPlan(1, (Route((4,)),)), TamperedHop(0, 0, "sign-flip", 20.0)
    rise = run_round(job_of(federation, linear, GuardSettings(tolerance=1e6)), plan, tamper)[0][1][
        0
    ].public_loss_increase
    assert rise > 0.1
    for tolerance, typical, refused in (
        (rise * 1.001, 0.0, False),
        (rise * 0.999, 0.0, True),
        (rise * 0.501, rise / 2, False),
        (rise * 0.499, rise / 2, True),
        (rise * 1.001, -rise, False),  # who is usually better is not asked to be
    ):
        found, (hop,), _, _ = run_round(
            job_of(federation, linear, GuardSettings(tolerance=tolerance)), plan, tamper, rise=typical
        )[0]
        assert bool(hop.refused) == refused
        assert hop.public_loss_increase == rise
        assert torch.equal(found, FlatLayout.of(linear).flatten(linear)) == refused


def test_a_refused_client_keeps_its_state_and_adds_nothing_to_the_payload(toy, linear):
    job = job_of(toy, linear, terms=(ControlVariates(),))
    client_states = ClientStateStore()
    plan, tamper = RoundPlan(1, (Route((0, 1)), Route((2,)))), TamperedHop(0, 1, "nan")
    (_, _, payload, _), _ = run_round(job, plan, tamper, client_states=client_states)
    alone = run_round(job, RoundPlan(1, (Route((0,)),)), client_states=ClientStateStore())[0][2]
    assert payload.keys() == alone.keys()
    for name in payload:
        assert torch.equal(payload[name], alone[name])
    assert all(not tensor.any() for tensor in client_states.get(1).values())
    assert any(tensor.any() for tensor in client_states.get(0).values())
    for tensors in map(client_states.get, (0, 1, 2)):
        assert all(tensor.isfinite().all() for tensor in tensors.values())


class Homesick(Term):
    """Pulls towards the model of the round."""

    declared: bool = False

    @property
    def needs_round_model(self):
        return self.declared

    def add_gradient(self, gradient, theta, context):
        gradient.add_(theta - context.round_model)


@pytest.mark.parametrize("lanes", [1, 8])
def test_the_model_of_the_round_is_only_there_if_a_term_needs_it(toy, linear, lanes):
    plan = RoundPlan(1, (Route((0, 1)), Route((2, 3))))
    run_round(job_of(toy, linear, terms=(Homesick(declared=True),), lanes=lanes), plan)
    run_round(job_of(toy, linear, terms=(Homesick(), ProximalPenalty(anchor="round")), lanes=lanes), plan)
    message = "term 'Homesick', add_gradient: AttributeError: round_model is not sent to clients; needs_round_model"
    with pytest.raises(SpecError, match=message):
        run_round(job_of(toy, linear, terms=(Homesick(), ProximalPenalty()), lanes=lanes), plan)


class Replaces(Term):
    """Puts new tensors in the place of those it should write to."""

    tensors: ClassVar = (ClientState("kept"), Payload("sum"))
    what: str = "new_client_state"

    def write_state_and_payload(self, context, outcome):
        if self.what == "payload":
            context.payload.update(sum=outcome.sent)
        else:
            getattr(context, self.what)["kept"] = outcome.sent


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("what", ["client_state", "new_client_state", "payload"])
def test_a_tensor_that_would_be_lost_is_refused(toy, linear, what, lanes):
    job = job_of(toy, linear, terms=(Replaces(what=what),), lanes=lanes)
    message = "term 'Replaces', write_state_and_payload: TypeError: .* cannot be replaced; write to (it|each) in place"
    with pytest.raises(SpecError, match=message):
        run_round(job, RoundPlan(1, (Route((0, 1)), Route((2, 3)))))


class Spoils(Term):
    """Keeps NaN, or sends it along, beside a model that is fine."""

    tensors: ClassVar = (ClientState("kept"), Payload("sum"))
    kind: str = "new_client_state"

    def write_state_and_payload(self, context, outcome):
        for tensor in getattr(context, self.kind).values():
            tensor.fill_(torch.nan)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize(("kind", "named"), [("new_client_state", "client state 'kept'"), ("payload", "payload 'sum'")])
def test_a_state_or_payload_that_is_not_finite_is_named_as_the_cause(toy, linear, kind, named, lanes):
    plan = RoundPlan(1, (Route((0,)), Route((2,))))
    advice = "look at the term that writes it, lower train.lr, or go on without such hops"
    with pytest.raises(DivergedError, match=f"non-finite values in the {named}; {advice}"):
        run_round(job_of(toy, linear, GuardSettings(), (Spoils(kind=kind),), lanes), plan)
    for _, [report], _, _ in run_round(job_of(toy, linear, SKIP, (Spoils(kind=kind),), lanes), plan):
        assert report.refused == f"non-finite values in the {named}"
