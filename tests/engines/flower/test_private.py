"""Nodes that demand privacy, and runs with and without enough noise."""

from __future__ import annotations

import json

import pytest

import fedrelay as fr
from fedrelay.engines.flower.node.owner_privacy_policy import OwnerPrivacyPolicy, PrivacyBudget

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")
pytest.importorskip("dp_accounting", reason="the extra 'dp' is not installed")

SETTINGS = {"engine": "flower", "data": "nodes", "rounds": 2, "batch_size": 32, "fraction": 1.0}


@pytest.fixture
def careful(digit_nodes):
    digit_nodes(3, alpha=1, policy=OwnerPrivacyPolicy(1.5))


def test_a_run_with_enough_noise_does_without_losses(careful, tmp_path):
    fr.run("fedavg+dp", **SETTINGS, **{"terms.dp.noise": 1.5, "recovery.repeats": 0}, out=tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["train_loss"] for row in rows] == [None] * len(rows)
    assert not (tmp_path / "run" / "events.jsonl").exists()


def test_a_run_without_noise_is_declined_and_warned_of(careful, caplog):
    with pytest.raises(fr.EngineError, match=r"takes part only with \+dp|anybody's work was accepted"):
        fr.run("fedavg", **SETTINGS)
    said = [record.getMessage() for record in caplog.records]
    assert "node 'n00' takes part only with +dp and terms.dp.noise at least 1.5; without, it will be skipped" in said


def test_a_resumed_run_gets_the_same_replies_and_is_charged_once(digit_nodes, tmp_path):
    policy = OwnerPrivacyPolicy(1.5)
    budget = PrivacyBudget(tmp_path, policy, 1e4, 1e-5)
    found = digit_nodes(3, alpha=1, policy=policy, budget=budget)

    class Die:
        def on_run_start(self, experiment, round):
            pass

        def on_profiling_progress(self, done, clients):
            pass

        def on_round_end(self, context):
            losses.append((context.round, context.row["loss"]))
            if len(losses) == 2:
                raise KeyboardInterrupt

    losses: list[tuple[int, float]] = []
    settings = {**SETTINGS, "rounds": 3, "checkpoint": {"seconds": 1e6}}
    options = {"terms.dp.noise": 1.5, "recovery.repeats": 0}
    with pytest.raises(KeyboardInterrupt):
        fr.run("fedseq+dp", **settings, **options, out=tmp_path / "run", callbacks=Die())
    spent = budget.spent
    found.restart()
    fr.resume(tmp_path / "run", callbacks=Die())
    assert [round for round, _ in losses] == [1, 2, 1, 2, 3]  # nothing was written between round 0 and the end
    assert losses[2:4] == losses[:2]
    assert budget.spent == spent * 3 // 2


def test_an_end_before_the_first_round_does_not_speak_of_checkpoints(careful, tmp_path):
    with pytest.raises(fr.EngineError, match=r"; no round was done; try again with: fedrelay resume .*run$"):
        fr.run("fedavg", **SETTINGS, **{"recovery.repeats": 9}, out=tmp_path / "run")
