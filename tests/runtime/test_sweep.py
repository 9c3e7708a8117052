from __future__ import annotations

import json

import pytest
from tests.report.folders import Stopper

import fedrelay as fr
from fedrelay.errors import DataError, SpecError

SETTINGS = {"clients": 8, "rounds": 2, "seeds": [2], "workers": 1, "batch_size": 32}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    out = tmp_path_factory.mktemp("swept") / "here"
    return fr.compare(["fedavg", "fedseq"], sweep={"alpha": [0.1, 1]}, out=out, **SETTINGS)


def test_a_cell_is_the_comparison_with_its_values(swept):
    alone = fr.compare(["fedavg", "fedseq"], alpha=1, **SETTINGS)
    cell = swept.at({"alpha": 1})
    for name in ("fedavg", "fedseq"):
        hashes = [[each.summary()["weights_sha256"] for each in found[name].results] for found in (cell, alone)]
        assert hashes[0] == hashes[1]
    assert repr(swept) == "SweepResult(data.alpha (2 values); methods: 2, seeds: 1)"
    with pytest.raises(KeyError, match=r"no cell .*; the sweep has alpha 0\.1; alpha 1"):
        swept.at({"alpha": 7})


def test_every_cell_is_a_folder_of_a_comparison(swept):
    out = swept.comparison.out
    assert (out / "alpha=0.1/fedseq/seed-2/result.json").is_file()
    assert json.loads((out / "alpha=1/results.json").read_text())["differences"]["baseline"] == "fedavg"
    assert {"comparison.yaml", "results.json", "table.csv", "sweep.png"} <= {path.name for path in out.iterdir()}


def test_what_was_done_is_kept(tmp_path):
    methods, out = ["fedavg", "fedseq"], tmp_path / "here"
    settings = SETTINGS | {"sweep": {"alpha": [0.1, 1]}, "out": out}
    with pytest.raises(KeyboardInterrupt):
        fr.compare(methods, callbacks=_StopInSecondCell(), **settings)
    first = out / "alpha=0.1/fedseq/seed-2/result.json"
    before = first.stat().st_mtime_ns
    assert not (out / "alpha=1/fedavg/seed-2/result.json").exists()
    result = fr.compare(methods, **settings)
    assert first.stat().st_mtime_ns == before
    assert all(len(method.results) == 1 for outcome in result.outcomes for method in outcome.methods)


class _StopInSecondCell(Stopper):
    def __init__(self) -> None:
        super().__init__(after=1)

    def on_run_start(self, experiment, round) -> None:
        self.after = 1 if experiment.data.alpha == 1 else 99


def test_nothing_runs_if_a_cell_is_impossible(tmp_path):
    with pytest.raises((SpecError, DataError), match="sweep, clients 100000"):
        fr.compare(
            ["fedavg"], out=tmp_path / "here", **(SETTINGS | {"clients": None, "sweep": {"clients": [8, 100_000]}})
        )
    assert not (tmp_path / "here").exists()


def test_own_data_cannot_be_swept():
    digits = fr.load_data("digits", clients=5)
    with pytest.raises(SpecError, match=r"sweep\.data\.alpha: has no effect on a data of your own"):
        fr.compare(["fedavg"], data=digits, sweep={"alpha": [0, 1]}, rounds=1)
