from __future__ import annotations

import json

import pytest
import yaml

KEYS = {
    "method", "seed", "rounds", "accuracy", "accuracy_last", "loss", "transfers", "bytes", "client_updates", "seconds",
    "run", "weights_sha256",
}  # fmt: skip


def test_a_run_shows_heading_progress_result_and_advice(program, tiny, tmp_path):
    ended = program("run", "fedavg", *tiny, "--model", "mlp", "--alpha", "0")
    assert ended.code == 0
    heading, result, advice = ended.out.split("\n\n")
    assert heading.startswith("fedavg on digits")
    assert "10, alpha 0" in heading
    assert "mlp, 4,810 parameters" in heading
    assert "2, 20 % take part in each" in heading
    for name in ("accuracy", "mean of last 2", "loss", "macro F1", "rounds to 90 %", "client updates", "time"):
        assert name in result
    assert "4 S2C   4 C2S   0 C2C" in result
    assert "153.9 kB" in result  # 8 transfers of 4,810 float32 values
    assert "runs/fedavg-digits-seed1" in result
    assert "fedrelay compare" in advice
    assert "fedavg: round 2/2, accuracy" in ended.err
    assert max(map(len, ended.out.splitlines())) <= 80


def test_json_is_the_last_and_only_line_on_stdout(program, tiny):
    ended = program("run", "fedseq", *tiny, "--seed", "7", "--json")
    assert ended.code == 0
    assert ended.out.count("\n") == 1
    assert set(ended.json) >= KEYS
    assert ended.json["method"] == "fedseq"
    assert ended.json["seed"] == 7
    assert ended.json["rounds"] == 2
    assert set(ended.json["transfers"]) == {"s2c", "c2s", "c2c"}
    assert "fedseq on digits" in ended.err


def test_json_equals_the_result_in_the_run_folder(program, tiny, tmp_path):
    ended = program("run", "fedavg", *tiny, "--json", "--out", "here")
    assert ended.json == json.loads((tmp_path / "here/result.json").read_text())


def test_quiet_shows_nothing_but_json(program, tiny):
    silent = program("run", "fedseq", *tiny, "--quiet")
    assert (silent.code, silent.out, silent.err) == (0, "", "")
    spoken = program("run", "fedseq", *tiny, "-q", "--json")
    assert spoken.json["rounds"] == 2
    assert spoken.err == ""


def test_default_folders_are_numbered(program, tiny, tmp_path):
    for _ in range(3):
        assert program("run", "fedavg+fedprox", *tiny, "-q").code == 0
    found = sorted(folder.name for folder in (tmp_path / "runs").iterdir())
    assert found == [f"fedavg+fedprox-digits-seed1{suffix}" for suffix in ("", "-2", "-3")]


def test_a_method_is_a_method_even_where_a_folder_has_its_name(program, tiny, tmp_path):
    (tmp_path / "fedavg").mkdir()
    assert program("run", "fedavg", *tiny, "--rounds", "1", "-q").code == 0
    assert program("run", "fedavg + fedprox", *tiny, "--rounds", "1", "-q").code == 0
    assert (tmp_path / "runs/fedavg+fedprox-digits-seed1").is_dir()


def test_options_win_over_the_file_and_set_wins_over_options(program, tmp_path):
    (tmp_path / "one.yaml").write_text(
        "method: fedseq\ndata: {name: digits, clients: 10}\nrounds: 9\ntrain: {lr: 0.5, epochs: 3, batch_size: 64}\n"
    )
    words = ["--rounds", "5", "--lr", "0.2", "--set", "lr=.1", "--set", "rounds=1", "--set", "route.loops=2"]
    ended = program("run", "one.yaml", *words, "--workers", "1", "--out", "out", "-q")
    assert ended.code == 0, ended.err
    spec = yaml.safe_load((tmp_path / "out/spec.yaml").read_text())
    assert spec["rounds"] == 1
    assert spec["train"]["lr"] == 0.1
    assert spec["train"]["epochs"] == 3
    assert spec["route"] == {"loops": 2}
    assert spec["data"]["clients"] == 10


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["--set", "grouping.max_clients=3"], ("grouping",), {"max_clients": 3}),
        (["--set", "terms.prox.mu=.5"], ("terms",), {"prox": {"mu": 0.5}}),
        (["--set", "eval.targets=[.5, .6]"], ("eval", "targets"), [0.5, 0.6]),
        (["--set", "train={lr: .1, momentum: .9}"], ("train", "momentum"), 0.9),
        (["--alpha", "0", "--partition", "dirichlet"], ("data", "alpha"), 0),
    ],
)
def test_any_key_of_the_spec_can_be_set(program, tiny, tmp_path, words, key, value):
    ended = program("run", "fedseq+fedprox", *tiny, "--rounds", "1", *words, "--out", "out", "-q")
    assert ended.code == 0, ended.err
    found = yaml.safe_load((tmp_path / "out/spec.yaml").read_text())
    for part in key:
        found = found[part]
    assert found == value


def test_warnings_appear_once_as_notes(program, tiny):
    ended = program("run", "fedavg-first", *tiny, "--set", "warmup.rounds=2")
    assert ended.err.count("note: the warm-up takes all") == 1
    again = program("compare", "fedavg-first", *tiny, "--set", "warmup.rounds=2", "--seeds", "1,2,3")
    assert again.err.count("note: ") == 1


def test_resuming_a_complete_run_shows_its_result(program, tiny):
    done = program("run", "fedavg", *tiny, "--out", "here", "--json")
    again = program("resume", "here")
    assert again.code == 0
    assert "This run is complete." in again.out
    assert "accuracy" in again.out
    assert program("resume", "here", "--json").json == done.json


def test_a_diverged_run_says_where_and_what_to_do(program, tiny):
    ended = program("run", "fedavg", *tiny, "--lr", "1e30", "--out", "here")
    assert ended.code == 5
    assert "fedrelay: fedavg: round 1" in ended.err
    assert "lower train.lr" in ended.err
    assert "are kept" not in ended.err  # no round was done


def test_privacy_is_planned_and_shown(program, tiny, tmp_path):
    settings = [*tiny, "--set", "terms.dp.noise=2", "--set", "checkpoint.seconds=0"]
    planned = program("plan", "fedseq+dp", *settings, "--json")
    assert planned.code == 0, planned.err
    done = program("run", "fedseq+dp", *settings, "--out", "here", "--json")
    assert done.code == 0, done.err
    assert done.json["privacy"] == planned.json["privacy"]
    assert done.json["privacy"]["hops_max"] == 2
    assert "ε at most" in done.err
    assert json.loads((tmp_path / "here/result.json").read_text())["privacy"] == done.json["privacy"]
    rows = [json.loads(line) for line in (tmp_path / "here/metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["epsilon"] == done.json["privacy"]["epsilon_max"]
    free = program("run", "fedseq+dp", *tiny, "--set", "terms.dp.noise=0", "--json")
    assert free.json["privacy"]["epsilon_max"] is None
    assert "none: no noise was added" in free.err


def test_rounds_without_arrivals_are_reported_and_a_run_of_only_those_fails(program, tiny):
    away = ["--set", "recovery.repeats=1", "--out", "run"]
    some = program("run", "fedavg", *tiny, *away, "--set", "faults=[{what: dropout, first: 2}]")
    assert some.code == 0
    assert "fault events" in some.out
    assert "too few arrivals 2×" in some.out
    assert "the round repeats" in some.err
    assert "the round is given up" in some.err
    ended = program("run", "fedavg", *tiny, *away[:-1], "none", "--set", "faults=[{what: dropout}]")
    assert (ended.code, ended.out.count("accuracy")) == (6, 0)
    assert "no client update was accepted in any of the 2 rounds (dropout 8×, too few arrivals 4×)" in ended.err
    assert "untrained (no client update was accepted in any round)" in " ".join(program("show", "none").out.split())


def test_notes_of_a_kind_are_counted(program, tiny):
    away = ["--set", "faults=[{what: dropout, rate: 0.9}]", "--set", "recovery.repeats=0", "--rounds", "12"]
    ended = program("run", "fedavg", *tiny, *away)
    given_up = [line for line in ended.err.splitlines() if "is given up" in line]
    assert len(given_up) == 2
    assert "more like this)" in given_up[1]


def test_a_run_that_stops_early_says_why_and_keeps_its_best_model(program, tiny, tmp_path):
    words = ["--rounds", "30", "--validation", "0.3", "--patience", "1", "--set", "min_gain=0.5", "--out", "run"]
    ended = program("run", "fedavg", *tiny, *words)
    assert ended.code == 0
    why = "stop.patience: no gain of more than 0.5 in validation_accuracy in 1 evaluations"
    assert f"after round 2 of 30: {why}" in " ".join(ended.out.split())
    assert f"stopped: {why}" in ended.err
    assert "run/best.safetensors" in ended.out
    assert (tmp_path / "run/best.safetensors").is_file()
    result = program("resume", "run", "--json").json
    assert (result["complete"], result["rounds"], result["stopped"]) == (True, 2, why)
    assert result["best"]["metric"] == "validation_accuracy"
    shown = program("show", "run")
    assert why in " ".join(shown.out.split())
    assert "complete" in shown.out
    assert "best model" in shown.out
    facts = program("show", "run", "--json").json
    assert (facts["state"], facts["stopped"], facts["best"]["round"]) == ("complete", why, result["best"]["round"])


def test_choosing_on_test_samples_is_noted_once(program, tiny):
    ended = program("run", "fedavg", *tiny, "--patience", "1")
    assert ended.err.count("note: stop.patience: chooses the last round by test samples") == 1


def test_a_run_gets_more_rounds(program, tiny, tmp_path):
    whole = program("run", "scaffold", *tiny, "--rounds", "4", "-q", "--json").json
    assert program("run", "scaffold", *tiny, "--out", "run", "-q").code == 0
    longer = program("resume", "run", "--rounds", "4", "--json")
    assert longer.code == 0
    assert longer.json["weights_sha256"] == whole["weights_sha256"]
    assert "scaffold: continues after round 2" in longer.err
    again = program("resume", "run", "--rounds", "4")
    assert again.code == 0
    assert "scaffold: already complete" in again.err
    shown = program("show", "run")
    assert "after round 2 to 4 rounds" in shown.out
    [extension] = program("show", "run", "--json").json["extensions"]
    assert (extension["from"], extension["to"]) == (2, 4)


def test_rounds_that_cannot_be_are_refused_in_one_line(program, tiny, tmp_path):
    assert program("compare", "fedavg", *tiny, "--out", "all", "-q").code == 0
    refused = program("resume", "all", "--rounds", "9")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "--rounds, --without: all is a comparison; give one of its runs, such as all/METHOD/seed-1" in refused.err
    for words, message in (
        (("--rounds", "1"), "rounds: 2 rounds of all/fedavg/seed-1 are done; must be more than that, got 1"),
        (("--rounds", "many"), "'many' is not a whole number"),
    ):
        refused = program("resume", "all/fedavg/seed-1", *words)
        assert refused.code == 2
        assert message in refused.err
    assert program("resume", "nowhere", "--rounds", "3").code == 4
