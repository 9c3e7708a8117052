"""Run folders with damaged files: a clear error or success, soon, and nothing written elsewhere."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.conftest import make_federation
from tests.damage import FAIR, cases, damaged, verdict
from torch import nn

import fedrelay as fr
from fedrelay.models.flat_layout import TORCH_GLOBALS


@pytest.fixture(scope="module")
def parties():
    """Data and model of a small run."""
    with TORCH_GLOBALS:
        return make_federation([5, 9, 3, 8, 4, 7]), nn.Linear(4, 3)


@pytest.fixture(scope="module")
def runs(tmp_path_factory, parties):
    """A complete run and one that was interrupted, with groups, slots, what clients keep and privacy between them."""

    class Die:
        def on_run_start(self, experiment, round):
            pass

        def on_round_end(self, context):
            if context.round == 2:
                raise KeyboardInterrupt

    folder, (data, model) = tmp_path_factory.mktemp("runs"), parties
    settings = {"data": data, "model": model, "rounds": 3, "fraction": 1.0, "workers": 1, "checkpoint": {"seconds": 0}}
    settings["grouping"] = {"max_clients": 2}
    fr.run("fedseq+dp", **settings, out=folder / "complete", attack={"name": "label-flip", "swap": [0, 1]})
    with pytest.raises(KeyboardInterrupt):
        fr.run("fedseqinter+scaffold", **settings, out=folder / "broken", callbacks=Die())
    return folder


def snapshot(folder: Path) -> list[tuple]:
    return sorted((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*"))


def test_damaged_run_folders(runs, parties, tmp_path):
    """Bytes, links and missing files; what lies beside the run stays as it is."""
    data, model = parties
    beside, run = tmp_path / "beside", tmp_path / "run"
    beside.mkdir()
    (beside / "precious-1-0123456789abcdef.safetensors").write_text("mine")
    (beside / "metrics.jsonl").write_text('{"round": 1, "accuracy": 0.5}\n')
    before, found = snapshot(beside), Counter()
    for seed in cases(800):
        rng = random.Random(f"folder {seed}")
        source = runs / rng.choice(("complete", "broken"))
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(source, run)
        file = rng.choice(sorted(path for path in run.rglob("*") if path.is_file() and path.name != ".lock"))
        match rng.randrange(12):
            case 0:
                file.unlink()
            case 1:
                file.unlink()
                file.symlink_to(beside / rng.choice(("metrics.jsonl", "none", ".")))
            case 2:
                file.unlink()
                file.mkdir()
            case 3:
                kept = run / "clients"
                shutil.rmtree(kept, ignore_errors=True)
                kept.symlink_to(beside)
            case 4:
                other = rng.choice(sorted(path for path in run.rglob("*") if path.is_file()))
                file.write_bytes(other.read_bytes())
            case _:
                file.write_bytes(damaged(file.read_bytes(), rng))
        outcome = verdict(fr.resume, run, data=data, model=model)
        assert outcome in FAIR, f"seed {seed}, {file.name}"
        found[outcome] += 1
        assert snapshot(beside) == before, f"seed {seed}: something was written outside"
    assert found["accepted"] > 0.0625 * found.total()


def test_names_in_checkpoints_cannot_lead_out(runs, parties, tmp_path):
    data, model = parties
    victim = tmp_path / "victim.safetensors"
    for key, value in (
        ("file", "../victim.safetensors"),
        ("clients", ["../victim.safetensors"]),
        ("file", "/dev/zero"),
    ):
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(runs / "broken", run)
        victim.write_bytes(
            (run / "round-2.safetensors").read_bytes() if (run / "round-2.safetensors").exists() else b"x"
        )
        pointer = json.loads((run / "checkpoint.json").read_text())
        (run / "checkpoint.json").write_text(json.dumps({**pointer, key: value}))
        assert verdict(fr.resume, run, data=data, model=model) == "refused", value
        assert victim.exists()


def test_nothing_waits_for_a_pipe_or_an_endless_device(runs, parties, tmp_path):
    data, model = parties
    for name in sorted(path.name for path in (runs / "broken").iterdir() if path.is_file() and path.name != ".lock"):
        for kind in ("pipe", "device"):
            run = tmp_path / "run"
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(runs / "broken", run)
            (run / name).unlink()
            if kind == "pipe":
                os.mkfifo(run / name)
            else:
                (run / name).symlink_to("/dev/zero")
            assert verdict(fr.resume, run, data=data, model=model) in FAIR, f"{name} as a {kind}"
