"""Attackers of several runs in one table, by exact numbers."""

from __future__ import annotations

from types import SimpleNamespace

from rich.console import Console

from fedrelay.report.terminal.attack_results import gan_attack_facts, gan_attack_table, unvisited_attackers
from fedrelay.robustness.gan_attack_run import GanAttackResult, GanObservation


def outcome(seed, *observations):
    experiment = SimpleNamespace(seed=seed)
    return GanAttackResult(
        7, observations, None, SimpleNamespace(experiment=experiment, accuracy=0.5, weights_sha256="0" * 64)
    )


OUTCOMES = {
    "fedavg": [outcome(1), outcome(2)],
    "fedseq": [
        outcome(1, GanObservation(1, None, 0.5, None, 90.0), GanObservation(2, 3, 0.72, 40.0, 30.0)),
        outcome(2, GanObservation(1, 4, 0.65, 20.0, 10.0)),
    ],
}


def test_means_are_over_the_runs_that_came_so_far():
    console = Console(width=120)
    with console.capture() as shown:
        console.print(gan_attack_table(OUTCOMES))
    rows = [line.split() for line in shown.get().splitlines() if "of 2" in line]
    assert rows[:4] == [
        ["fedavg", "0", "0", *label, "0", "of", "2", "–", "–"]
        for label in (["≥", "60", "%"], ["≥", "70", "%"], ["≥", "80", "%"], ["last"])
    ]
    assert rows[4:] == [
        ["fedseq", "1.5", "1", "≥", "60", "%", "2", "of", "2", "30", "20"],
        ["fedseq", "1.5", "1", "≥", "70", "%", "1", "of", "2", "40", "30"],
        ["fedseq", "1.5", "1", "≥", "80", "%", "0", "of", "2", "–", "–"],
        ["fedseq", "1.5", "1", "last", "2", "of", "2", "30", "20"],
    ]


def test_attackers_without_a_hop_are_named():
    assert [line.split(": client")[0] for line in unvisited_attackers(OUTCOMES)] == ["fedavg, seed 1", "fedavg, seed 2"]
    facts = gan_attack_facts(OUTCOMES)
    assert facts["fedavg"]["attacker"] == 7
    assert [run["visits"] for run in facts["fedavg"]["runs"]] == [[], []]
    assert facts["fedseq"]["runs"][1]["visits"][0]["fid_all"] == 10.0
