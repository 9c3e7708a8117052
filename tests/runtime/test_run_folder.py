"""The run folder: what is written, what survives, what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import re
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

import fedrelay as fr
from fedrelay.cli import main
from fedrelay.experiment.spec import experiment
from fedrelay.runtime.run_folder import RunFolder, write_atomically
from fedrelay.runtime.run_state import RunState


@pytest.fixture
def run(tmp_path, small) -> Path:
    """A complete run."""
    fr.run("fedseq", **small, out=tmp_path / "run")
    return tmp_path / "run"


def stop_after(round_to_stop: int):
    class Stop:
        def on_run_start(self, experiment, round):
            pass

        def on_interrupt(self):
            pass

        def on_round_end(self, context):
            if context.round == round_to_stop:
                raise KeyboardInterrupt("the process dies here")

    return Stop()


def begun(tmp_path, small, *, checkpoint_seconds=0.0, dies_after=2, **more) -> Path:
    """A run whose process died."""
    out = tmp_path / "begun"
    with pytest.raises(KeyboardInterrupt):
        fr.run(
            "fedseq",
            **small,
            out=out,
            **{"checkpoint.seconds": checkpoint_seconds, **more},
            callbacks=stop_after(dies_after),
        )
    return out


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def test_a_complete_run_folder(run, small):
    names = {path.name for path in run.iterdir()}
    assert names == {
        ".lock",
        "run.json",
        "spec.yaml",
        "plan.json",
        "class_counts.npz",
        "metrics.jsonl",
        "ledger.jsonl",
        "timings.jsonl",
        "checkpoint.json",
        "checksums.jsonl",
        "round-3.safetensors",
        "model.safetensors",
        "result.json",
    }
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    ledger = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    result = json.loads((run / "result.json").read_text())
    assert [row["round"] for row in metrics] == [row["round"] for row in ledger] == [1, 2, 3]
    assert result["accuracy"] == metrics[-1]["accuracy"]
    assert sum(row["c2c"] for row in ledger) == result["transfers"]["c2c"]
    assert all(len(route) for row in ledger for route in row["routes"])
    assert json.loads((run / "run.json").read_text())["versions"]["torch"] == version("torch")
    spec = yaml.safe_load((run / "spec.yaml").read_text())
    assert (spec["method"], spec["rounds"], spec["data"]["clients"]) == ("fedseq", 3, 20)


def test_the_final_model_loads_into_the_module(run, small):
    result = fr.resume(run)
    saved = load_file(run / "model.safetensors")
    assert saved.keys() == result.model.keys()
    assert all(torch.equal(saved[name], result.model[name]) for name in saved)


def test_a_complete_run_is_simply_read(run):
    before = snapshot(run)
    result = fr.resume(run)
    assert result.complete
    assert result.summary() == json.loads((run / "result.json").read_text())
    assert snapshot(run) == before


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def with_another_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [Path.unlink, shortened, with_another_bit])
def test_the_model_of_a_complete_run_is_written_again_if_it_is_missing_or_damaged(run, harm, caplog):
    before = snapshot(run)
    harm(run / "model.safetensors")
    assert fr.resume(run).complete
    assert snapshot(run) == before
    assert (
        f"{run / 'model.safetensors'}: was missing or damaged; it is written again from the checkpoint" in caplog.text
    )


def test_the_result_of_a_complete_run_is_written_again_if_it_is_not_what_the_records_say(run, caplog):
    told = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**told, "accuracy": 0.99, "bytes": 7, "of_another_version": 1}))
    fr.resume(run)
    assert json.loads((run / "result.json").read_text()) == told
    place = run / "result.json"
    assert f"{place}: was changed (accuracy, bytes); it is written again from the checkpoint" in caplog.text


def test_a_damaged_file_of_a_client_is_named_before_anything_is_printed(tmp_path, small):
    """It may be needed only hours later."""
    with pytest.raises(KeyboardInterrupt):
        fr.run("scaffold", **small, out=tmp_path / "run", **{"checkpoint.seconds": 0.0}, callbacks=stop_after(2))
    *_, damaged = sorted((tmp_path / "run" / "clients").iterdir())
    with_another_bit(damaged)
    begun = []

    class Header(fr.Callback):
        def on_run_start(self, experiment, round):
            begun.append(round)

    with pytest.raises(fr.RunFolderError) as refused:
        fr.resume(tmp_path / "run", callbacks=Header())
    assert str(refused.value) == f"{damaged}: is damaged (its checksum differs from its name)"
    assert begun == []


@pytest.mark.parametrize("checkpoint_seconds", [0.0, 1000.0])
def test_a_dead_run_goes_on_to_the_same_end(tmp_path, small, run, checkpoint_seconds):
    folder = begun(tmp_path, small, checkpoint_seconds=checkpoint_seconds)
    assert not (folder / "result.json").exists()
    fr.resume(folder)
    for name in ("metrics.jsonl", "ledger.jsonl", "round-3.safetensors", "model.safetensors", "plan.json"):
        assert (folder / name).read_bytes() == (run / name).read_bytes()


def test_a_half_written_line_is_dropped(tmp_path, small, run):
    folder = begun(tmp_path, small)
    for stream in ("metrics", "ledger", "timings"):
        with (folder / f"{stream}.jsonl").open("a") as file:
            file.write('{"round": 3, "accu')
    fr.resume(folder)
    assert (folder / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()


def test_a_stray_temporary_file_does_no_harm(tmp_path, small, run):
    folder = begun(tmp_path, small)
    (folder / ".checkpoint.json.123.tmp").write_bytes(b"{")
    assert fr.resume(folder).summary()["weights_sha256"] == fr.resume(run).summary()["weights_sha256"]


def damage(name: str, content: bytes | None):
    def apply(folder: Path) -> None:
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)

    return apply


def flip_a_byte(folder: Path) -> None:
    path = folder / "round-2.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def reseal(folder: Path) -> None:
    """Make the checksums fit, as somebody who wants to deceive would."""
    facts = json.loads((folder / "run.json").read_text())
    facts["sha256"] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in facts["sha256"]}
    (folder / "run.json").write_text(json.dumps(facts))


def resealed(name: str, content: bytes):
    def apply(folder: Path) -> None:
        (folder / name).write_bytes(content)
        reseal(folder)

    return apply


def lose_a_round(folder: Path) -> None:
    lines = (folder / "ledger.jsonl").read_text().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_text(lines[1])


def lose_the_last_line(name: str):
    def apply(folder: Path) -> None:
        lines = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(lines[:-1]))

    return apply


lose_the_last_round = lose_the_last_line("ledger.jsonl")


def invent_an_event(folder: Path, round: int = 1) -> None:
    event = {"round": round, "route": 0, "hop": 0, "client": 0, "what": "dropout", "done": "skipped"}
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")


def change_a_digit(name: str, key: str):
    def apply(folder: Path) -> None:
        *others, last = (folder / name).read_text().splitlines()
        row = json.loads(last)
        changed = json.dumps({**row, key: row[key] + 1})
        (folder / name).write_text("\n".join([*others, changed]) + "\n")

    return apply


def other_model(folder: Path) -> None:
    spec = yaml.safe_load((folder / "spec.yaml").read_text())
    spec["model"]["hidden"] = [7]
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
    reseal(folder)


def other_data(folder: Path) -> None:
    spec = yaml.safe_load((folder / "spec.yaml").read_text())
    spec["data"]["alpha"] = 100.0
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
    reseal(folder)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (damage("run.json", None), r"is not a run folder \(run\.json is missing\)"),
        (damage("run.json", b"\x00garbage"), r"run\.json: is damaged"),
        (damage("run.json", b"[1]"), r"run\.json: is damaged \(not an object\)"),
        (
            damage("run.json", b'{"format": 99}'),
            r"has format 99, this version reads format 2; read the folder with the version",
        ),
        (damage("spec.yaml", b"method: fedavg"), r"spec\.yaml: is not what the run was started with"),
        (resealed("spec.yaml", b"method: [unclosed"), r"spec\.yaml is damaged"),
        (resealed("spec.yaml", b"method: fedseq\nbogus: 1\n"), r"spec\.yaml is damaged: bogus: unknown key"),
        (damage("spec.yaml", None), r"spec\.yaml"),
        (resealed("plan.json", b"{}"), r"plan\.json: is damaged"),
        (damage("checkpoint.json", b"{}"), r"does not lead to a checkpoint"),
        (damage("checkpoint.json", b"\xff\xfe"), r"checkpoint\.json: is damaged"),
        (damage("round-2.safetensors", None), r"does not lead to a checkpoint"),
        (damage("round-2.safetensors", b"short"), r"its checksum differs"),
        (flip_a_byte, r"its checksum differs"),
        (damage("metrics.jsonl", b"not json\n"), r"metrics\.jsonl: is damaged"),
        (damage("metrics.jsonl", b"[1]\n"), r"metrics\.jsonl: is damaged \(a line without round, accuracy\)"),
        (damage("ledger.jsonl", b'{"round": 1}\n{"round": 2}\n'), r"a line without s2c, c2s, c2c"),
        (damage("checkpoint.json", None), r"checkpoint\.json is missing; the run is damaged"),
        (resealed("plan.json", b'{"clients": 20, "groups": [[0, 999]]}'), r"plan\.json: is damaged"),
        (resealed("plan.json", b'{"clients": 20, "groups": [[0, 1], [1]]}'), r"plan\.json: is damaged"),
        (damage("metrics.jsonl", None), r"metrics\.jsonl, line 1 \(round 1\): is missing"),
        (
            damage("metrics.jsonl", b'{"round": 1, "accuracy": 0.5}\n'),
            r"metrics\.jsonl, line 1 \(round 1\): was changed",
        ),
        (damage("run.json", b"[" * 100_000), r"run\.json: is damaged"),
        (lose_a_round, r"ledger\.jsonl, line 1 \(round 2\): was changed since it was written, or a line before it is"),
        (lose_the_last_round, r"ledger\.jsonl, line 2 \(round 2\): is missing; its checksum is in checksums\.jsonl"),
        (lose_the_last_line("timings.jsonl"), r"timings\.jsonl, line 2 \(round 2\): is missing"),
        (
            lose_the_last_line("checksums.jsonl"),
            r"line 2 \(round 2\): has no checksum .*; it was added later, or checks",
        ),
        (invent_an_event, r"events\.jsonl, line 1 \(round 1\): has no checksum in checksums\.jsonl, though its round"),
        (
            change_a_digit("ledger.jsonl", "bytes"),
            r"ledger\.jsonl, line 2 \(round 2\): was changed since it was written",
        ),
        (change_a_digit("metrics.jsonl", "accuracy"), r"metrics\.jsonl, line 2 \(round 2\): was changed since it was"),
        (change_a_digit("timings.jsonl", "seconds"), r"timings\.jsonl, line 2 \(round 2\): was changed since it was"),
        (damage("checksums.jsonl", b"not json\n"), r"checksums\.jsonl: is damaged .*; delete it to go on without"),
        (damage("checksums.jsonl", b"[1]\n"), r"checksums\.jsonl: is damaged .*; delete it to go on without"),
        (damage("checksums.jsonl", b'{"round": 1, "ledger": 7}\n'), r"checksums\.jsonl: is damaged .*; delete it"),
        (other_model, r"does not fit the model of the run, which has features\.1\.weight \[64, 64\]; this has"),
        (other_data, r"the data are not those the run was started with"),
    ],
)
def test_damaged_folders_are_refused_and_left_untouched(tmp_path, small, harm, message):
    folder = begun(tmp_path, small)
    harm(folder)
    before = snapshot(folder)
    with pytest.raises(fr.RunFolderError, match=message):
        fr.resume(folder)
    assert snapshot(folder) == before


def test_a_changed_digit_of_a_complete_run_is_named_by_all_readers(run, capsys):
    change_a_digit("metrics.jsonl", "accuracy")(run)
    message = f"{run / 'metrics.jsonl'}, line 3 (round 3): was changed since it was written"
    for words in (["resume", str(run)], ["show", str(run)], ["report", str(run)]):
        assert main(words) != 0
        assert message in " ".join(capsys.readouterr().err.split())


def test_a_lost_last_line_of_a_complete_run_is_named_by_all_readers(run, capsys):
    lose_the_last_line("metrics.jsonl")(run)
    for words in (["resume", str(run)], ["show", str(run)], ["report", str(run)]):
        assert main(words) != 0
        assert f"{run / 'metrics.jsonl'}, line 3 (round 3): is missing" in " ".join(capsys.readouterr().err.split())


def test_an_invented_event_of_a_complete_run_does_not_change_its_result(run):
    before = (run / "result.json").read_bytes()
    invent_an_event(run, round=3)
    with pytest.raises(fr.RunFolderError, match=r"events\.jsonl, line 1 \(round 3\): has no checksum"):
        fr.resume(run)
    assert (run / "result.json").read_bytes() == before


def test_an_evaluation_after_the_checkpoint_is_dropped(tmp_path, small, run):
    """A callback may ask for the end after a round was saved, and the process may die before it is saved again."""
    folder = begun(tmp_path, small, **{"eval.every": 3})
    row = json.loads((run / "metrics.jsonl").read_text().splitlines()[1])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    invent_an_event(folder, round=2)
    result = fr.resume(folder)
    assert ([row["round"] for row in result.history], result.fault_events) == ([3], {})


@pytest.mark.parametrize("written", range(6))
def test_a_resume_that_dies_between_two_files_can_be_repeated(tmp_path, small, run, written, monkeypatch):
    """All files that `resume` shortens: the checksums, and then the streams."""
    folder = begun(tmp_path, small)
    for stream in ("metrics", "ledger", "timings"):
        with (folder / f"{stream}.jsonl").open("a") as file:
            file.write((run / f"{stream}.jsonl").read_text().splitlines(keepends=True)[2])
    left = iter(range(written))

    def write(path, content):
        if next(left, None) is None:
            raise KeyboardInterrupt
        write_atomically(path, content)

    with monkeypatch.context() as patch:
        patch.setattr("fedrelay.runtime.run_folder.write_atomically", write)
        with pytest.raises(KeyboardInterrupt):
            fr.resume(folder)
    assert fr.resume(folder).weights_sha256 == fr.resume(run).weights_sha256


def test_runs_of_earlier_versions_get_checksums_when_they_are_resumed(tmp_path, small, run, caplog):
    """Nothing of them can be verified, and resume says so."""
    folder = begun(tmp_path, small)
    checksums = (folder / "checksums.jsonl").read_bytes()
    (folder / "checksums.jsonl").unlink()
    assert fr.resume(folder).weights_sha256 == fr.resume(run).weights_sha256
    assert f"{folder}: its records cannot be verified, because there is no checksums.jsonl: an earlier" in caplog.text
    assert (folder / "checksums.jsonl").read_bytes().startswith(checksums)
    change_a_digit("ledger.jsonl", "bytes")(folder)
    with pytest.raises(fr.RunFolderError, match=r"ledger\.jsonl, line 3 \(round 3\): was changed"):
        fr.resume(folder)


def test_checksums_are_the_same_however_often_a_run_was_saved_and_resumed(tmp_path, small, run):
    folder = begun(tmp_path, small)
    fr.resume(folder)
    wanted, found = (
        [json.loads(line) for line in (each / "checksums.jsonl").read_text().splitlines()] for each in (run, folder)
    )
    assert [row["round"] for row in wanted] == [1, 2, 3]
    for one, other in zip(wanted, found, strict=True):
        assert {**one, "timings": 0} == {**other, "timings": 0}


def test_a_pointer_cannot_lead_out_of_the_folder(tmp_path, small):
    folder = begun(tmp_path, small)
    secret = tmp_path / "secret.safetensors"
    secret.write_bytes((folder / "round-2.safetensors").read_bytes())
    pointer = json.loads((folder / "checkpoint.json").read_text())
    (folder / "checkpoint.json").write_text(json.dumps({**pointer, "file": "../secret.safetensors"}))
    with pytest.raises(fr.RunFolderError, match="does not lead to a checkpoint"):
        fr.resume(folder)


def test_a_run_that_failed_before_its_first_round_has_nothing_to_verify(tmp_path, small, caplog):
    with pytest.raises(fr.DivergedError):
        fr.run("fedavg", **{**small, "lr": 1e30}, out=tmp_path / "run")
    with pytest.raises(fr.DivergedError):
        fr.resume(tmp_path / "run")
    assert "cannot be verified" not in caplog.text


def test_foreign_folders_are_refused(tmp_path, small):
    with pytest.raises(fr.RunFolderError, match="there is no such run folder"):
        fr.resume(tmp_path / "nowhere")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("precious")
    with pytest.raises(fr.RunFolderError, match="is not a run folder"):
        fr.resume(tmp_path / "thesis")
    with pytest.raises(fr.RunFolderError, match="is not empty"):
        fr.run("fedavg", **small, out=tmp_path / "thesis")
    (tmp_path / "thesis" / "run.json").write_text("{}")
    with pytest.raises(fr.RunFolderError, match="holds a run; continue it with"):
        fr.run("fedavg", **small, out=tmp_path / "thesis")
    (tmp_path / "thesis" / "run.json").unlink()
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter1.tex"]


def test_a_folder_in_use_is_refused(run, warm_python, tmp_path):
    code = (
        "import time; from pathlib import Path; from fedrelay.runtime.run_folder import RunFolder\n"
        f"RunFolder.open(Path({str(run)!r})); print('held', flush=True); time.sleep(600)"
    )
    holder = warm_python.start("-c", code, folder=tmp_path)
    try:
        holder.says("held\n")
        with pytest.raises(fr.RunFolderError, match="another process is working on this run"):
            fr.resume(run)
    finally:
        holder.kill()
        holder.wait()
    assert fr.resume(run).complete


def test_runs_with_own_data_and_model_need_them_again(tmp_path, toy, linear):
    settings = {"data": toy, "model": linear, "rounds": 3, "fraction": 1.0, "lr": 0.2}
    expected = fr.run("fedseq", **settings)
    out = tmp_path / "own"
    with pytest.raises(KeyboardInterrupt):
        fr.run("fedseq", **settings, out=out, callbacks=stop_after(2))
    with pytest.raises(fr.RunFolderError, match=r"continue it with fedrelay\.resume\(.*, data=…\)"):
        fr.resume(out)
    call = re.escape(f"continue it with fedrelay.resume({str(out)!r}, data=…, model=…) in Python")
    with pytest.raises(fr.RunFolderError, match=call):
        fr.run("fedseq", **settings, out=out)
    with pytest.raises(fr.RunFolderError, match=call):
        fr.export(out, tmp_path / "exported", data=toy, model=linear)
    with pytest.raises(fr.RunFolderError, match=r"model=…\)"):
        fr.resume(out, data=toy)
    assert torch.equal(fr.resume(out, data=toy, model=linear).weights, expected.weights)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(fr.RunFolderError, match="cannot be written"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"


def test_only_the_newest_checkpoint_is_kept(tmp_path):
    folder = RunFolder.create(tmp_path / "run", experiment("fedavg"), {}, {"groups": []})
    for round in range(3):
        folder.save(RunState(round, torch.zeros(2)))
    folder.close()
    assert [path.name for path in (tmp_path / "run").glob("*.safetensors")] == ["round-2.safetensors"]


def test_a_run_that_died_before_it_began_is_begun_anew(tmp_path, small, run):
    half = tmp_path / "half"
    half.mkdir()
    for name in (".lock", "spec.yaml", ".plan.json.77.tmp"):
        (half / name).write_bytes(b"")
    assert fr.run("fedseq", **small, out=half).history == fr.resume(run).history


def test_a_folder_is_open_only_once_in_a_process(run):
    folder = RunFolder.open(run)
    with pytest.raises(fr.RunFolderError, match="is open in this process already"):
        fr.resume(run)
    folder.close()
    assert fr.resume(run).complete


def test_links_are_not_followed_out_of_the_folder(tmp_path, small):
    folder = begun(tmp_path, small)
    (folder / ".lock").unlink()
    (folder / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(fr.RunFolderError, match="cannot be written"):
        fr.resume(folder)
    assert not (tmp_path / "elsewhere").exists()


def test_a_run_is_resumed_from_any_directory(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 5)).astype(np.float32), rng.integers(0, 3, 40)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fr.run("fedavg", data="own.npz", clients=4, rounds=3, out="run", callbacks=stop_after(1))
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    assert fr.resume("../run").complete


def test_other_versions_are_noted(tmp_path, small, caplog):
    folder = begun(tmp_path, small)
    facts = json.loads((folder / "run.json").read_text())
    facts["versions"]["torch"] = "1.0"
    (folder / "run.json").write_text(json.dumps(facts))
    assert fr.resume(folder).complete
    assert "torch 1.0 → " + version("torch") in caplog.text


def test_odd_paths_do_no_harm(tmp_path, small):
    odd = tmp_path / os.fsdecode(b"bad\xff \xc3\xbc")
    assert fr.run("fedavg", **small, out=odd).complete
    assert fr.resume(odd).complete
