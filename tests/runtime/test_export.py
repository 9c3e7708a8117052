from __future__ import annotations

import csv
import json
import logging

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import fedrelay as fr
from fedrelay.cli import main

SMALL = {"clients": 6, "rounds": 2, "workers": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "run"
    fr.run("fedseq", out=folder, **SMALL)
    return folder


IMAGES = torch.from_numpy(np.random.default_rng(1).integers(0, 17, (5, 1, 8, 8))).float()


def expected_outputs(run, folder):
    """The outputs of the final model for the images, computed by hand."""
    scaling = json.loads((folder / "model.json").read_text())["inputs"]["scaling"]
    weights = load_file(run / "model.safetensors")
    x = ((IMAGES - scaling["shift"][0]) * scaling["scale"][0]).flatten(1)
    hidden = torch.relu(x @ weights["features.1.weight"].T + weights["features.1.bias"])
    return hidden @ weights["classifier.weight"].T + weights["classifier.bias"]


def test_weights_load_into_plain_pytorch(run, tmp_path):
    weights = fr.export(run, tmp_path / "a").model
    state = fr.export(run, tmp_path / "b", format="state-dict").model
    first, second = load_file(weights), torch.load(state, weights_only=True)
    final = load_file(run / "model.safetensors")
    assert first.keys() == second.keys() == final.keys()
    assert all(torch.equal(first[name], final[name]) and torch.equal(second[name], final[name]) for name in final)


def test_a_program_scales_raw_values_itself_and_takes_any_batch(run, tmp_path):
    program = torch.export.load(fr.export(run, tmp_path / "out", format="torch-export").model).module()
    torch.testing.assert_close(program(IMAGES), expected_outputs(run, tmp_path / "out"))
    assert program(IMAGES[:1]).shape == (1, 10)


@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_onnx_runs_without_pytorch(run, tmp_path, capfd):
    onnxruntime = pytest.importorskip("onnxruntime")
    capfd.readouterr()
    exported = fr.export(run, tmp_path / "out", format="onnx")
    assert capfd.readouterr() == ("", ""), "the exporter's own remarks are not for users"
    session = onnxruntime.InferenceSession(exported.model)
    [outputs] = session.run(None, {"x": IMAGES.numpy()})
    torch.testing.assert_close(torch.from_numpy(outputs), expected_outputs(run, tmp_path / "out"))


def test_predictions_are_those_behind_the_last_accuracy(run, tmp_path):
    found = fr.export(run, tmp_path / "out", predictions=True)
    with found.predictions.open() as file:
        rows = list(csv.DictReader(file))
    right = [max(range(10), key=lambda k: float(row[f"output_{k}"])) == int(row["target"]) for row in rows]
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert sum(right) / len(right) == pytest.approx(last["accuracy"])


def test_predictions_of_a_bf16_run_give_the_loss_of_its_last_round(tmp_path):
    fr.run("fedseq", out=tmp_path / "run", precision="bf16", **SMALL)
    found = fr.export(tmp_path / "run", tmp_path / "out", predictions=True)
    with found.predictions.open() as file:
        rows = list(csv.DictReader(file))
    outputs = torch.tensor([[float(row[f"output_{k}"]) for k in range(10)] for row in rows])
    assert torch.equal(outputs, outputs.bfloat16().float())
    loss = nn.functional.cross_entropy(outputs, torch.tensor([int(row["target"]) for row in rows]))
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert float(loss) == pytest.approx(last["loss"], rel=1e-6)
    assert "were computed in mixed precision (bf16), as\nin the run. The exported model" in found.card.read_text()


def test_the_card_says_what_the_model_is(run, tmp_path):
    card = fr.export(run, tmp_path / "out").card.read_text()
    summary = json.loads((run / "result.json").read_text())
    for text in (
        "fedseq",
        "digits: 6 clients",
        "classification",
        summary["weights_sha256"],
        "| accuracy |",
        "| seed | 1 |",
    ):
        assert text in card


def test_the_command(run, tmp_path, capsys):
    assert main(["export", str(run), "--out", str(tmp_path / "out"), "--predictions", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == {"model", "model_card", "predictions"}
    assert main(["export", str(run), "--out", str(tmp_path / "out")]) == 2
    assert "is not an empty folder" in capsys.readouterr().err


def test_what_cannot_be_exported_is_refused(run, tmp_path):
    with pytest.raises(fr.SpecError, match="format: must be one of safetensors, state-dict, torch-export, onnx"):
        fr.export(run, tmp_path / "out", format="pickle")
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    fr.run("fedavg", model=net, out=tmp_path / "own", **SMALL)
    with pytest.raises(fr.SpecError, match=r"with a model of your own; use fedrelay\.export"):
        fr.export(tmp_path / "own", tmp_path / "out")
    assert fr.export(tmp_path / "own", tmp_path / "out", model=net).model.is_file()
    (tmp_path / "own" / "result.json").unlink()
    with pytest.raises(fr.RunFolderError, match="not complete"):
        fr.export(tmp_path / "own", tmp_path / "out2", model=net)
    (tmp_path / "own" / "result.json").write_text("{}")
    (tmp_path / "own" / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(fr.RunFolderError, match=r"model\.safetensors: cannot be read"):
        fr.export(tmp_path / "own", tmp_path / "out2", model=net)


class Branching(nn.Module):
    """Takes another way for other values, which no trace can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(64, 10)

    def forward(self, x):
        outputs = self.out(x.flatten(1))
        return outputs if outputs.sum() > 0 else outputs + 1


@pytest.mark.parametrize("format", ["torch-export", "onnx"])
def test_a_model_that_cannot_be_traced_is_refused_in_one_line(tmp_path, capfd, format):
    if format == "onnx":
        pytest.importorskip("onnxscript")
    fr.run("fedavg", model=Branching(), out=tmp_path / "run", **SMALL)
    capfd.readouterr()
    message = rf"^format: the model cannot be exported as {format} \(Could not guard on [^\n]*\); use safetensors$"
    with pytest.raises(fr.SpecError, match=message):
        fr.export(tmp_path / "run", tmp_path / "out", format=format, model=Branching())
    assert capfd.readouterr() == ("", "")
    assert not (tmp_path / "out").exists()
    assert logging.root.manager.disable == logging.NOTSET


class NamedInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, age, scan):
        return {"logits": self.out(torch.cat([age.unsqueeze(1), scan], dim=1))}


def test_a_model_with_several_inputs(tmp_path):
    rows = [({"age": float(row), "scan": torch.full((3,), row / 9)}, row % 2) for row in range(9)]
    data, net = fr.federate_datasets([rows[:3], rows[3:6]], rows[6:], classes=2), NamedInputs()
    result = fr.run(
        "fedavg", data=data, model=net, rounds=1, workers=1, clock={"profile": "fedgsp"}, out=tmp_path / "run"
    )
    before = net.out.weight.clone()
    found = fr.export(tmp_path / "run", tmp_path / "out", data=data, model=net, predictions=True)
    assert torch.equal(net.out.weight, before)
    inputs = json.loads((tmp_path / "out" / "model.json").read_text())["inputs"]
    assert inputs["shape"] == {"age": ["batch"], "scan": ["batch", 3]}
    assert inputs["type"] == {"age": "float32", "scan": "float32"}
    with found.predictions.open() as file:
        last = list(csv.DictReader(file))[-1]
    expected = torch.tensor([8, *[8 / 9] * 3]) @ result.model["out.weight"].T + result.model["out.bias"]
    assert [float(last["output_0"]), float(last["output_1"])] == pytest.approx(expected.tolist(), rel=1e-5)
    others = fr.federate_datasets([rows[:3], rows[3:6]], rows[5:], classes=2)
    with pytest.raises(fr.RunFolderError, match="the data are not those the run was started with"):
        fr.export(tmp_path / "run", tmp_path / "others", data=others, model=net, predictions=True)
    assert not (tmp_path / "others").exists()
    with pytest.raises(fr.SpecError, match="format: torch-export and onnx take models with one input"):
        fr.export(tmp_path / "run", tmp_path / "program", data=data, model=net, format="torch-export")


@pytest.fixture(scope="module")
def run_with_best(tmp_path_factory):
    """A run whose best round is not its last one, and its result."""
    folder = tmp_path_factory.mktemp("best") / "run"
    result = fr.run("fedseq", out=folder, **{**SMALL, "rounds": 6}, lr=0.5, alpha=0, validation=0.2)
    assert result.best.round < 6
    return folder, result


def test_the_best_model_is_exported_with_its_round_and_score(run_with_best, tmp_path):
    folder, result = run_with_best
    found = fr.export(folder, tmp_path / "out", best=True, predictions=True)
    weights = load_file(found.model)
    assert all(torch.equal(weights[name], tensor) for name, tensor in result.best.state_dict.items())
    card = found.card.read_text()
    row, best = result.best.row, result.best
    assert f"| round | {best.round}, the best one on validation samples: validation_accuracy {best.value:.6g} |" in card
    assert f"| accuracy | {row['accuracy']:.6g} | {row['validation_accuracy']:.6g} |" in card
    assert result.weights_sha256 not in card
    model = json.loads((found.folder / "model.json").read_text())["model"]
    assert model == {"name": "mlp", "which": "best", "round": best.round}
    with found.predictions.open() as file:
        rows = list(csv.DictReader(file))
    right = [max(range(10), key=lambda k: float(row[f"output_{k}"])) == int(row["target"]) for row in rows]
    assert sum(right) / len(right) == pytest.approx(row["accuracy"])
    last = fr.export(folder, tmp_path / "last").card.read_text()
    assert "| round | 6, the last one |" in last
    assert result.weights_sha256 in last


def test_a_run_without_a_best_model_says_which_setting_keeps_one(run, run_with_best, tmp_path, capsys):
    assert main(["export", str(run), "--best"]) == 2
    told = capsys.readouterr().err
    assert "kept no best model, because it has no validation samples; run it with data.validation" in " ".join(
        told.split()
    )
    assert not (run / "export-best").exists()
    assert main(["export", str(run_with_best[0]), "--best", "--format", "state-dict", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == str(run_with_best[0] / "export-best" / "model.pt")


def code_of(card):
    """The first Python block of a card."""
    return card.read_text().split("```python\n")[1].split("```")[0]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedavg", {"model": {"name": "mlp", "hidden": (8, 4)}}),
        ("fedfusion", {}),
    ],
)
def test_the_code_of_the_card_builds_and_loads_the_model(tmp_path, monkeypatch, method, settings):
    result = fr.run(method, out=tmp_path / "run", **{**SMALL, "rounds": 1}, **settings)
    for format in ("safetensors", "state-dict"):
        found = fr.export(tmp_path / "run", tmp_path / format, format=format)
        monkeypatch.chdir(found.folder)
        names: dict[str, object] = {"x": IMAGES}
        exec(code_of(found.card), names)
        loaded = names["net"].state_dict()
        assert loaded.keys() == result.model.keys()
        assert all(torch.equal(loaded[name], tensor) for name, tensor in result.model.items())
        assert names["outputs"].shape == (5, 10)
        assert not names["net"].training


def test_the_card_names_a_model_of_the_users_own(tmp_path, monkeypatch):
    (tmp_path / "exportlab.py").write_text(
        "from torch import nn\n\n\ndef make(shape, outputs):\n    return nn.Sequential(nn.Flatten(), "
        "nn.Linear(shape[1] * shape[2], outputs))\n\n\ndef tiny():\n    return make((1, 8, 8), 10)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    for function, call in (("make", "make((1, 8, 8), 10)"), ("tiny", "tiny()")):
        fr.run("fedavg", model=f"exportlab:{function}", out=f"{function}-run", **{**SMALL, "rounds": 1})
        code = code_of(fr.export(f"{function}-run", function).card)
        assert f"from exportlab import {function}\n" in code
        assert f"net = {call}\n" in code
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    fr.run("fedavg", model=lambda: net, out="own-run", **{**SMALL, "rounds": 1})
    found = fr.export("own-run", "own", model=lambda: net)
    assert "net = ...  # your own module lambda, built as it was given to fedrelay.run" in code_of(found.card)
