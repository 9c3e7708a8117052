"""Runs that survive faults, or end with a reason that is kept."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import torch
from tests.conftest import make_federation

from fedrelay import resume, run
from fedrelay.errors import DivergedError, NoUpdateAcceptedError, SpecError
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment
from fedrelay.local.client_state import ClientStateStore
from fedrelay.local.state_until_merge import state_after_merges
from fedrelay.local.terms.control_variates import ControlVariates
from fedrelay.runtime.run_folder import RunFolder
from fedrelay.runtime.run_folder_reader import RunFolderReader
from fedrelay.runtime.run_status import RunStatus

RUN = {"rounds": 6, "fraction": 0.5, "lr": 0.1, "workers": 1}


def small(method, *faults, **more):
    return run(method, data=make_federation([8] * 12), **{**RUN, "faults": faults, **more})


def bits(result):
    return result.summary()["weights_sha256"], result.history, dict(result.fault_events)


def kept_of(path):
    """What the server and every client of a finished run keep."""
    folder = RunFolder.open(path)
    client_states = ClientStateStore(path / "clients")
    client_states.restore(folder.client_files)
    state = folder.restore(lambda round: True)
    folder.close()
    until_merge = [tensor for tensor in ControlVariates.tensors if getattr(tensor, "until_merge", False)]
    stored = (client_states.get(client) for client in range(12))
    return state.server, [state_after_merges(each, until_merge, state.merges) for each in stored]


STORM = [{"what": "dropout", "rate": 0.3}, {"what": "nan", "rate": 0.2}]
REPEATING = {"guard": {"on_divergence": "skip"}, "recovery": {"min_arrivals": 4, "repeats": 20}}


@pytest.mark.parametrize("method", ["scaffold", "fedseq+scaffold", "spfl+scaffold", "fedseqinter+scaffold"])
def test_whatever_goes_wrong_the_servers_correction_is_the_mean_of_the_clients(method, tmp_path):
    more = {"grouping.max_clients": 3, "route.loops": 2} if "fedseq" in method else {}
    more |= {"route.period": 2} if "inter" in method else {}
    small(method, *STORM, out=tmp_path / "run", **REPEATING, **more)
    server, clients = kept_of(tmp_path / "run")
    mean = sum(kept.get("control", torch.zeros(1)) for kept in clients) / 12
    assert float(mean.norm()) > 0.01
    torch.testing.assert_close(server["control"], mean, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("norm", [None, 0.5], ids=["", "shortened"])
def test_whatever_goes_wrong_feddyn_remembers_every_clients_drift(norm, tmp_path):
    more = {**REPEATING, "guard": {"on_divergence": "skip", "norm": norm}}
    result = small("feddyn", *STORM, out=tmp_path / "run", **more)
    server, clients = kept_of(tmp_path / "run")
    mean = sum(kept.get("drift", torch.zeros(1)) for kept in clients) / 12
    assert float(mean.norm()) > 0.01
    torch.testing.assert_close(server["merge/drift"], mean, rtol=1e-4, atol=1e-6)
    assert ("long update" in result.fault_events) == (norm is not None)


@pytest.mark.parametrize("final", ["ema", "mean"])
def test_refused_hops_do_not_dilute_the_sum_of_a_warm_up(final):
    faults = {"what": "nan", "clients": tuple(range(6))}
    more = {"guard": {"on_divergence": "skip"}, "warmup": {"cycles": 6, "final": final}, "lr": 1e-6}
    result = small("wfsl", faults, **more)
    torch.testing.assert_close(result.weights, small("fedavg", rounds=1, lr=1e-6).weights, rtol=1e-3, atol=1e-4)


def test_models_that_wait_are_merged_even_if_nobody_comes_home_in_time():
    stormy = {"what": "dropout", "first": 2, "last": 2}
    more = {"route.period": 2, "grouping.max_clients": 3, "recovery": {"repeats": 0}, "fraction": 1.0}
    after_two = small("fedseqinter", stormy, rounds=2, **more)
    one_long = small("fedseqinter", rounds=1, **{**more, "route.period": 1})
    torch.testing.assert_close(after_two.weights, one_long.weights)


def test_a_lost_first_hop_costs_rotations_one_more_round_model():
    model = small("fedavg").bytes // 72  # six clients, six rounds, down and up
    lost = {"what": "dropout", "first": 1, "last": 1, "clients": tuple(range(12)), "rate": 0.1}
    extra = {}
    for method in ("spfl", "spfl+glam"):
        fair, stormy = small(method, rounds=1), small(method, lost, rounds=1)
        assert stormy.fault_events["dropout"] > 0
        extra[method] = (fair.bytes // model, stormy.bytes // model)
    assert extra["spfl"][0] == extra["spfl+glam"][0]
    assert extra["spfl+glam"][1] == extra["spfl"][1] + 1


@pytest.mark.parametrize("method", ["fedseq+glam", "spfl+glam", "fedseqinter+glam", "fedstar"])
def test_routes_that_nobody_is_left_on_do_no_harm(method):
    more = {"grouping.max_clients": 3} if "fedseq" in method else {}
    result = small(method, {"what": "dropout", "rate": 0.7}, recovery={"repeats": 20}, **more)
    assert result.fault_events["dropout"] > 0
    assert torch.isfinite(result.weights).all()


@pytest.mark.parametrize("method", ["fedavg", "fedseq", "fedseqinter", "fedseq+scaffold", "spfl"])
def test_the_same_faults_for_any_number_of_workers(method, tmp_path):
    faults = [{"what": "dropout", "rate": 0.3}, {"what": "nan", "rate": 0.2}, {"what": "hang", "rate": 0.1}]
    more = {"guard": {"on_divergence": "skip"}, **({"grouping.max_clients": 3} if "fedseq" in method else {})}
    one = small(method, *faults, workers=1, **more)
    two = small(method, *faults, workers=2, out=tmp_path / "run", **more)
    assert bits(one) == bits(two)
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert Counter(event["what"] for event in events) == one.fault_events
    assert one.fault_events["dropout"] > 0
    assert one.fault_events["nan"] > 0
    assert torch.isfinite(one.weights).all()


def test_a_round_without_arrivals_repeats_and_is_given_up_at_last(caplog):
    fine = small("fedavg", {"what": "dropout", "rate": 0.6}, fraction=0.2, recovery={"min_arrivals": 2, "repeats": 50})
    assert "repeats" in caplog.text
    assert fine.client_updates >= 6 * 2
    assert fine.fault_events["too few arrivals"] == caplog.text.count("the round repeats") > 0
    caplog.clear()
    lost = {"what": "dropout", "first": 2, "last": 3}
    two_lost = small("fedavg", lost, recovery={"repeats": 1})
    assert caplog.text.count("is given up") == 2
    assert two_lost.fault_events["too few arrivals"] == 4
    assert [two_lost.history[index]["loss"] for index in (1, 2)] == [two_lost.history[0]["loss"]] * 2


NOBODY = {
    "everybody is away": ({"faults": [{"what": "dropout"}]}, NoUpdateAcceptedError, "dropout 36×, too few arrivals 6×"),
    "nobody is fast enough": ({"recovery.deadline": 1e-9}, NoUpdateAcceptedError, "deadline 36×, too few arrivals 6×"),
    "nobody need arrive": (
        {"faults": [{"what": "gone"}], "recovery.min_arrivals": 0},
        NoUpdateAcceptedError,
        "gone 36×, too few arrivals 6×",
    ),
    "every model is refused": (
        {"lr": 1e30, "guard.on_divergence": "skip"},
        DivergedError,
        "too few arrivals 6×, weights beyond 1e+08 36×",
    ),
}


@pytest.mark.parametrize("case", NOBODY)
def test_a_run_in_which_nobodys_work_was_accepted_fails_and_is_kept(case, tmp_path):
    settings, kind, wrong = NOBODY[case]
    path = tmp_path / "run"
    for go in (lambda: small("fedavg", **{"recovery.repeats": 0, "out": path, **settings}), lambda: again(path)):
        with pytest.raises(kind) as failed:
            go()
        assert str(failed.value) == (
            f"fedavg: no client update was accepted in any of the 6 rounds ({wrong}); the model is untrained; "
            f"rounds 1 to 6 are kept in {path}"
        )
    events = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    last = {"round": 6, "route": -1, "hop": -1, "client": -1, "what": "too few arrivals"}
    assert events[-1] == {**last, "done": "the round was given up"}
    assert len((path / "metrics.jsonl").read_text().splitlines()) == 6
    assert not (path / "result.json").exists()
    assert RunStatus.of(RunFolderReader.open(path)).state == "untrained"


def again(path):
    return resume(path, data=make_federation([8] * 12))


def test_a_diverged_run_leaves_a_trace_that_a_second_attempt_does_not_double(tmp_path):
    path = tmp_path / "run"
    spoilt = {"what": "nan", "first": 3, "clients": tuple(range(12))}
    for go in (lambda: small("fedavg", spoilt, out=path), lambda: again(path)):
        with pytest.raises(DivergedError):
            go()
        [event] = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
        assert (event["round"], event["client"], event["what"]) == (3, -1, "diverged")
        assert "non-finite weights" in event["done"]


def test_divergence_ends_the_run_unless_it_may_go_on():
    with pytest.raises(DivergedError, match="non-finite weights"):
        small("fedavg", {"what": "nan", "rate": 0.1})
    going_on = small("fedavg", {"what": "nan", "rate": 0.1}, guard={"on_divergence": "skip"})
    assert going_on.accuracy > 0


def test_a_model_that_forgets_the_public_set_is_refused():
    flipped = {"what": "sign-flip", "clients": (0, 1), "factor": 50}
    guarded = small("fedavg", flipped, guard={"tolerance": 0.5, "on_divergence": "skip"}, fraction=1.0)
    assert guarded.fault_events["sign-flip"] == 12
    assert guarded.client_updates == 72
    unguarded = small("fedavg", flipped, guard={"on_divergence": "skip"}, fraction=1.0)
    assert guarded.history[-1]["loss"] < unguarded.history[-1]["loss"]


def test_what_is_usual_is_learnt_from_attempts_that_failed_too():
    more = {"guard": {"tolerance": 1e-6}, "lr": 1.0, "rounds": 8, "recovery": {"repeats": 1}}
    result = small("fedcyclic", **more)  # one model: if all its turns are refused, nothing comes home
    assert result.fault_events["a higher loss on the public set"] > 0
    assert result.history[-1]["loss"] != result.history[0]["loss"]


def test_looking_at_the_public_set_takes_time_in_the_ledger():
    plain, checked = (
        prepare(experiment("fedseq", **{"data.public": 3, "guard.tolerance": tolerance, "data.clients": 10}))
        for tolerance in (None, 0.5)
    )
    plan = plain.planner.plan(1)
    lengths = [len(route.clients) for route in plan.routes]
    each = 2 * 3 * 10 * plain.costs.sample_flops / 3 / checked.costs.devices(0).flops
    before, after = (run.costs.virtual_time(plan) for run in (plain, checked))
    assert after.computing_seconds - before.computing_seconds == pytest.approx(max(lengths) * each)
    assert after.communicating_seconds == before.communicating_seconds


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ([{"what": "drop"}], r"faults\.0\.what: must be 'dropout'.*did you mean 'dropout'"),
        ([{"what": "nan", "rate": 2}], r"faults\.0\.rate: must be less than or equal to 1"),
        ([{"what": "nan", "speed": 2}], r"faults\.0\.speed: unknown key 'speed'; allowed: what, rate, clients"),
        ([{"what": "nan", "factor": 2}], r"faults\.0\.factor: has no effect with 'nan'; only with straggler"),
        ([{"what": "gone", "last": 2}], r"faults\.0\.last: has no effect with 'gone'"),
        ([{"what": "nan", "first": 3, "last": 2}], r"faults\.0\.last: must not be before the first round \(3\), got 2"),
        ([{"what": "nan", "clients": []}], r"faults\.0\.clients: must name at least one client"),
        ([{"what": "nan", "clients": [99]}], r"faults\.0\.clients: must be clients, 0 to 11, got 99"),
    ],
)
def test_impossible_faults_are_refused(faults, message):
    with pytest.raises(SpecError, match=message):
        small("fedavg", *faults)
