from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.usefixtures("no_drawing")

TINY = [
    "--clients", "6", "--rounds", "2", "--workers", "1", "--trials", "2", "--seeds", "7",
    "--set", "tune.rungs=2", "--set", "tune.seeds=[1]", "--set", "tune.extensions=0", "--set", "data.samples=100",
]  # fmt: skip


def test_a_dry_run_says_what_it_would_cost_and_writes_nothing(program, tmp_path):
    words = ("tune", "fedavg", "fedprox", *TINY, "--dry-run")
    facts = program(*words, "--json").json
    assert facts["runs"] == 2 * (2 + 1)
    assert facts["methods"]["fedavg"] == {
        "learning_rates": [0.00625, 0.4],
        "hyperparameter": None,
        "runs": 3,
        "one_run": facts["methods"]["fedprox"]["one_run"],
        "tuning": facts["methods"]["fedprox"]["tuning"],
        "comparison": facts["methods"]["fedprox"]["comparison"],
    }
    assert facts["methods"]["fedprox"]["hyperparameter"] == {"terms.prox.mu": [0.01, 0.1, 1.0]}
    assert facts["methods"]["fedavg"]["tuning"]["round"] == 2 * 1 + 1
    shown = program(*words)
    assert "Nothing was run." in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    assert list(tmp_path.iterdir()) == []


def test_from_nothing_to_a_recommendation_and_again(program, tmp_path):
    words = ("tune", "fedavg", *TINY, "--out", "here", "--json")
    found = program(*words)
    assert found.code == 0, found.err
    assert found.out.count("\n") == 1
    facts = found.json
    assert facts["recommended"] == "fedavg"
    assert "fedavg has the best validation accuracy within 2 rounds, with 1 fresh seed" in " ".join(found.err.split())
    assert json.loads((tmp_path / "here/tuning.json").read_text()) == facts
    for name in ("report.html", "recommended.yaml", "best/fedavg.yaml", "comparison/results.json"):
        assert (tmp_path / "here" / name).is_file(), name
    assert program("resume", "here", "--json").json == facts
    assert program("run", "here/recommended.yaml", "--rounds", "1", "--out", "run", "--quiet").code == 0
    assert "here: is a tuning; its page is here/report.html" in program("report", "here").err
    assert "here: is a tuning; its results are in here/tuning.json" in program("show", "here").err
    assert program("resume", "here", "--rounds", "9").err == (
        "fedrelay: --rounds, --without, --log, --tensorboard, --mlflow: here is a tuning; give a run, such as "
        "here/trials/METHOD/trial-01/seed-1\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--hyperparameter", "fedprox"],
            "--hyperparameter: must be METHOD:KEY=A,B,…, such as fedprox:terms.prox.mu=0.01,0.1",
        ),
        (
            ["--hyperparameter", "fedprox:terms.prox.mu=-1,1"],
            "fedprox: terms.prox.mu: must be greater than or equal to 0",
        ),
        (["--hyperparameter", "fedprox:terms.prox.mu=1"], "terms.prox.mu needs at least two different values"),
        (["--hyperparameter", "moon:terms.contrast.mu=1,2"], "tune.hyperparameter: 'moon' is none of the methods"),
        (["--trials", "1"], "tune.trials: must be greater than or equal to 2, got 1"),
        (["--objective", "bytes"], "tune.objective: 'bytes' is a cost until stop.target is reached; set --target"),
        (["--objective", "money"], "tune.objective: must be"),
        (["--seeds", "1", "--set", "tune.seeds=[1]"], "seeds: 1 is used for tuning"),
        (["--validation", "0"], "data.validation: must be above 0"),
        (["--set", "tune.rungs=9"], "tune.rungs: must be less than or equal to 8"),
    ],
)
def test_bad_ranges_are_refused_in_one_line(words, message, program, tmp_path):
    found = program("tune", "fedavg", "fedprox", "--clients", "6", "--rounds", "4", *words)
    assert found.code == 2
    assert message in found.err
    assert found.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
