from __future__ import annotations

import pytest
import torch
from torchmetrics.text import Perplexity

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.tasks.language_model import LanguageModel


@pytest.fixture
def sample(generator):
    targets = torch.randint(0, 9, (5, 7), generator=generator)
    targets[1, 3:] = IGNORED_LABEL
    return torch.randn(5, 7, 9, generator=generator), targets


def test_perplexity_is_that_of_torchmetrics(sample):
    outputs, targets = sample
    found = LanguageModel().metrics_from_sums(LanguageModel().evaluation_sums(outputs, targets).values)
    assert found["perplexity"] == pytest.approx(float(Perplexity(ignore_index=IGNORED_LABEL)(outputs, targets)))
    kept = targets != IGNORED_LABEL
    assert found["token_accuracy"] == float((outputs.argmax(-1) == targets)[kept].double().mean())


def test_the_loss_of_a_sequence_adds_up(sample):
    outputs, targets = sample[0][:1], sample[1][:1]
    task = LanguageModel()
    assert float(task.single_sample_loss(outputs, targets)) == pytest.approx(
        7 * float(task.batch_loss(outputs, targets))
    )


def test_a_perplexity_beyond_all_numbers_is_unknown():
    outputs = torch.zeros(1, 2, 3)
    outputs[..., 0] = 5000
    targets = torch.ones(1, 2, dtype=torch.int64)
    assert (
        LanguageModel().metrics_from_sums(LanguageModel().evaluation_sums(outputs, targets).values)["perplexity"]
        is None
    )


def test_padding_alone_has_no_scores(sample):
    nothing = torch.full((5, 7), IGNORED_LABEL)
    found = LanguageModel().metrics_from_sums(LanguageModel().evaluation_sums(sample[0], nothing).values)
    assert found == {"perplexity": None, "token_accuracy": None}
