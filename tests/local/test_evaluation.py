from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.data.samples import Samples
from fedrelay.local.evaluation import CHUNK, chunks_of, evaluate, evaluate_chunk, headline_score
from fedrelay.local.teacher_model_runner import TeacherModelRunner
from fedrelay.models.flat_layout import FlatLayout, FlatModule
from fedrelay.tasks.classification import Classification

TASK = Classification()


def bench_of(module):
    layout = FlatLayout.of(module)
    return FlatModule(module, layout), layout.flatten(module)


def test_chunks_add_up_to_the_whole():
    torch.manual_seed(0)
    module = nn.Linear(4, 3)
    flat_module, weights = bench_of(module)
    samples = Samples(torch.randn(2 * CHUNK + 7, 4), torch.randint(0, 3, (2 * CHUNK + 7,)))
    assert len(chunks_of(samples)) == 3
    parts = [evaluate_chunk(flat_module, weights, TASK, samples, chunk) for chunk in chunks_of(samples)]
    whole = parts[0] + parts[1] + parts[2]
    with torch.no_grad():
        logits = module(samples.x)
    accuracy = (logits.argmax(-1) == samples.y).double().mean().item()
    np.testing.assert_allclose(whole.mean_loss, nn.functional.cross_entropy(logits, samples.y).item(), rtol=1e-5)
    assert TASK.metrics_from_sums(whole.values)["accuracy"] == accuracy
    assert whole.values["actual"].tolist() == torch.bincount(samples.y, minlength=3).tolist()
    assert evaluate(flat_module, weights, TASK, samples).loss == whole.loss
    assert headline_score(flat_module, weights, TASK, samples) == accuracy
    assert headline_score(flat_module, weights, TASK, Samples(samples.x[:0], samples.y[:0])) == 0


def test_padding_counts_nowhere():
    module = nn.Embedding(5, 3)  # logits at every position of a sequence
    flat_module, weights = bench_of(module)
    y = torch.tensor([[0, 1, IGNORED_LABEL], [2, IGNORED_LABEL, IGNORED_LABEL]])
    sums = evaluate(flat_module, weights, TASK, Samples(torch.tensor([[1, 2, 0], [3, 0, 0]]), y))
    assert sums.values["actual"].tolist() == [1, 1, 1]
    assert sums.values["predicted"].sum() == sums.weight == 3


def test_models_are_evaluated_in_evaluation_mode():
    module = nn.Sequential(nn.Dropout(0.9), nn.Linear(4, 2)).train()
    flat_module, weights = bench_of(module)
    samples = Samples(torch.randn(50, 4), torch.randint(0, 2, (50,)))
    first, second = (evaluate(flat_module, weights, TASK, samples).loss for _ in range(2))
    assert first == pytest.approx(second, abs=0)


def test_bf16_evaluates_as_plain_autocast_with_a_float32_loss():
    torch.manual_seed(0)
    module = nn.Linear(4, 3)
    layout = FlatLayout.of(module)
    flat_module = FlatModule(module, layout, precision="bf16")
    samples = Samples(torch.randn(50, 4), torch.arange(50) % 3)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        logits = module(samples.x)
    assert logits.dtype == torch.bfloat16
    wanted = nn.functional.cross_entropy(logits.float(), samples.y, reduction="sum").item()
    assert evaluate(flat_module, layout.flatten(module), TASK, samples).loss == wanted


@dataclass(frozen=True, slots=True)
class FrozenOutputs:
    logits: torch.Tensor


class Wrapped(nn.Module):
    def __init__(self, inner, wrap):
        super().__init__()
        self.inner, self.wrap = inner, wrap

    def forward(self, x):
        return self.wrap(logits=self.inner(x))


@pytest.mark.parametrize("wrap", [SimpleNamespace, FrozenOutputs, dict, UserDict])
def test_bf16_ends_before_the_loss_whatever_holds_the_logits(wrap):
    torch.manual_seed(0)
    inner, samples = nn.Linear(4, 3), Samples(torch.randn(50, 4), torch.arange(50) % 3)
    layout, module = FlatLayout.of(inner), Wrapped(inner, wrap)
    weights = layout.flatten(inner)
    wanted = evaluate(FlatModule(inner, layout, precision="bf16"), weights, TASK, samples).loss
    flat_module = FlatModule(module, FlatLayout.of(module), precision="bf16")
    assert evaluate(flat_module, weights, TASK, samples).loss == wanted
    assert isinstance(flat_module.outputs(samples.x), wrap)
    batch = TeacherModelRunner(flat_module, features=False).batch(samples.x, samples.y, torch.zeros(50, 3))
    assert batch.outputs_of_model(weights).logits.dtype == torch.float32
