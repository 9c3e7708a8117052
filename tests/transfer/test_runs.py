"""Runs with a codec: reproducible, resumable, counted by the bytes that are sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.conftest import make_federation

import fedrelay as fr
from fedrelay.engines.base import RoundInputs
from fedrelay.engines.local.simulation_engine import start_local
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import GuardSettings, TrainSettings, TransferSettings, experiment
from fedrelay.local.client_state import ClientStateStore
from fedrelay.local.error_feedback import UNSENT, error_feedback_terms
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.models.zoo import build_model
from fedrelay.report.terminal.plan import plan_report
from fedrelay.routes.execution_overlay import AS_PLANNED, ExecutionOverlay, TamperedHop
from fedrelay.routes.plan import RoundPlan, Route
from fedrelay.transfer.model_codec import ModelCodec

SIZES = [8, 12, 9, 5, 7, 6]
SETTINGS = {"rounds": 3, "batch_size": 4, "lr": 0.3, "fraction": 0.7, "model": "mlp", "model.hidden": (8,)}
ALL = ["float16", "bfloat16", "int8", "top-k"]


def run(method, codec, workers=1, **settings):
    return fr.run(
        method, data=make_federation(SIZES), workers=workers, transfer={"codec": codec}, **{**SETTINGS, **settings}
    )


@pytest.mark.parametrize("codec", ALL)
def test_one_worker_and_two_workers_have_the_same_bits(codec):
    for method in ("fedavg+scaffold", "fedgsp"):
        one, two, plain = run(method, codec), run(method, codec, workers=2), run(method, "float32")
        assert one.weights_sha256 == two.weights_sha256 != plain.weights_sha256


@pytest.mark.parametrize("codec", ["int8", "top-k"])
def test_a_run_that_is_interrupted_ends_with_the_same_bits(codec, tmp_path):
    class Stop(fr.Callback):
        def on_round_end(self, *arguments):
            raise KeyboardInterrupt

    whole = run("fedavg", codec, fraction=1.0)
    settings = {"out": tmp_path / "run", "checkpoint.seconds": 0.0, "fraction": 1.0}
    with pytest.raises(KeyboardInterrupt):
        run("fedavg", codec, callbacks=[Stop()], **settings)
    resumed = fr.resume(tmp_path / "run", data=make_federation(SIZES))
    assert resumed.weights_sha256 == whole.weights_sha256
    assert resumed.bytes == whole.bytes


def bytes_of_models(folder: Path, *names: str) -> int:
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    return sum(line["payloads"].get(name, 0) for line in lines for name in names)


@pytest.mark.parametrize("codec", ALL)
def test_the_ledger_counts_encoded_lengths(codec, tmp_path):
    result = run("fedavg", codec, out=tmp_path / "run")
    layout = FlatLayout.of(build_model("mlp", (4,), 3, hidden=(8,)))
    found = ModelCodec.of(TransferSettings(codec=codec), layout)
    model = result.weights
    length = found.encode(model, torch.zeros_like(model)).nbytes
    down, up = result.transfers["s2c"], result.transfers["c2s"]
    whole = 4 * len(model)
    assert bytes_of_models(tmp_path / "run", "model", "changed weights") == result.bytes
    assert result.bytes == (down * (whole if codec == "top-k" else length) + up * length)
    assert result.communicating_seconds < run("fedavg", "float32").communicating_seconds


def job_of(federation, module, guard, codec="top-k", lanes=1, **transfer):
    settings = TransferSettings(codec=codec, **transfer)
    return TrainingJob(
        module,
        FlatLayout.of(module),
        federation,
        TrainSettings(batch_size=2),
        error_feedback_terms(settings),
        3,
        lanes,
        transfer=settings,
        guard=guard,
    )


def run_round(job, states, overlay=AS_PLANNED, *, plan):
    engine = start_local(job, 1, states)
    try:
        start = job.layout.flatten(job.module)
        arrivals = engine.run_round(plan, overlay, RoundInputs(start))
        engine.commit_client_state()
        return start, [arrival.weights.clone() for arrival in arrivals]
    finally:
        engine.close()


@pytest.mark.parametrize("lanes", [1, 4])
def test_what_was_sent_and_what_is_kept_are_all_changes(toy, linear, lanes):
    guard = GuardSettings()
    plan = RoundPlan(1, (Route((0,)), Route((1,))))
    plain = job_of(toy, linear, guard, "float32", lanes)
    _, wanted = run_round(plain, ClientStateStore(), plan=plan)
    states = ClientStateStore()
    start, sent = run_round(job_of(toy, linear, guard, lanes=lanes, keep=0.2), states, plan=plan)
    for client in (0, 1):
        unsent = states.get(client)[UNSENT]
        assert torch.count_nonzero(sent[client] - start) == 3  # a fifth of 15
        assert torch.equal(sent[client] + unsent, wanted[client])
        assert not (unsent * (sent[client] - start)).any()
    _, again = run_round(job_of(toy, linear, guard, lanes=lanes, keep=0.2), states, plan=plan)
    for client in (0, 1):  # the same training once more: twice the change is sent or kept
        total = (sent[client] - start) + (again[client] - start) + states.get(client)[UNSENT]
        torch.testing.assert_close(total, 2 * (wanted[client] - start), rtol=1e-5, atol=1e-6)


def test_two_routes_at_one_client_keep_the_sum(toy, linear):
    plan, guard = RoundPlan(1, (Route((0,)), Route((0,))), "server"), GuardSettings()
    _, wanted = run_round(job_of(toy, linear, guard, "float32"), ClientStateStore(), plan=plan)
    states = ClientStateStore()
    start, sent = run_round(job_of(toy, linear, guard, keep=0.2), states, plan=plan)
    unsent = states.get(0)[UNSENT]
    torch.testing.assert_close(sum(sent) + unsent - 2 * start, sum(wanted) - 2 * start, rtol=1e-5, atol=1e-6)


def test_a_refused_hop_changes_neither_the_model_nor_what_is_kept(toy, linear):
    job, states = job_of(toy, linear, GuardSettings(on_divergence="skip"), keep=0.2), ClientStateStore()
    overlay = ExecutionOverlay(tampers=(TamperedHop(0, 0, "nan", 1.0),))
    start, [sent] = run_round(job, states, overlay, plan=RoundPlan(1, (Route((0,)),)))
    assert torch.equal(sent, start)
    assert not states.get(0).get(UNSENT, torch.zeros(1)).any()


@pytest.mark.parametrize("codec", ALL)
def test_the_guard_sees_the_decoded_model(toy, linear, codec):
    job = job_of(toy, linear, GuardSettings(on_divergence="skip"), codec)
    overlay = ExecutionOverlay(tampers=(TamperedHop(0, 0, "inf", 1.0),))
    start, [sent] = run_round(job, ClientStateStore(), overlay, plan=RoundPlan(1, (Route((0, 1)),), "server"))
    assert sent.isfinite().all()
    assert not torch.equal(sent, start)  # the second client's work


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("fedseq", {}, "next client lacks the model before; set route.handover=server, or transfer.codec to int8"),
        ("fedstar", {}, "next client lacks the model before; set transfer.codec to int8, float16 or bfloat16"),
        ("fedavg+dp", {}, "set transfer.error_feedback=false"),
        ("fedavg", {"guard.norm": 3.0}, "guard.norm: scales models down, which 'top-k' cannot encode exactly"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(method, settings, message):
    with pytest.raises(fr.SpecError) as refused:
        run(method, "top-k", fraction=1.0, **settings)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_noise_is_added_before_encoding():
    result = fr.run(
        "fedavg+dp",
        data=make_federation(SIZES),
        transfer={"codec": "top-k", "error_feedback": False},
        workers=1,
        **{**SETTINGS, "rounds": 1},
    )
    assert result.weights.isfinite().all()


def test_where_nothing_travels_nothing_is_encoded():
    assert run("centralized", "top-k").weights_sha256 == run("centralized", "float32").weights_sha256


def test_a_plan_shows_encoded_sizes():
    sizes = {"int8": {"model": 67 + 2}, "top-k": {"model": 4 * 67, "changed weights": 7 * 4 + 9}}
    for codec, expected in sizes.items():
        wanted = experiment("fedavg", transfer={"codec": codec}, **SETTINGS)
        report = plan_report(prepare(wanted, federation=make_federation(SIZES)), 1)
        assert report["payloads"] == expected
        assert report["bytes"] == 4 * (sum(expected.values()) if codec == "top-k" else 2 * expected["model"])
