"""LSTM models for token sequences. Inputs and labels share one vocabulary unless `vocabulary` is given."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from fedrelay.models.two_part_classifier import Shape, TwoPartClassifier


class SequenceOutputs(nn.Module):
    """The outputs of an LSTM at every position, without its final state."""

    def forward(self, result: tuple[Tensor, tuple[Tensor, Tensor]]) -> Tensor:
        return result[0]


class LastStep(nn.Module):
    """The last position of a sequence."""

    def forward(self, sequence: Tensor) -> Tensor:
        """`[batch, length, width]` → `[batch, width]`."""
        return sequence[:, -1]


def char_lstm(
    shape: Shape, classes: int, *, hidden: tuple[int, ...] = (100, 100), vocabulary: int | None = None
) -> TwoPartClassifier:
    """The next-character LSTM of FedDyn and FedSeq on Shakespeare; LEAF's has `hidden=(256, 256)`."""
    embedding = nn.Embedding(vocabulary or classes, 8)
    features = nn.Sequential(embedding, *_lstm_layers(8, hidden), LastStep())
    return TwoPartClassifier(features, nn.Linear(hidden[-1], classes))


def word_lstm(
    shape: Shape, classes: int, *, hidden: tuple[int, ...] = (670,), vocabulary: int | None = None
) -> TwoPartClassifier:
    """The next-word LSTM of Reddi et al. (2021) on StackOverflow, with a prediction at every position."""
    embedding = nn.Embedding(vocabulary or classes, 96)
    features = nn.Sequential(embedding, *_lstm_layers(96, hidden), nn.Linear(hidden[-1], 96))
    return TwoPartClassifier(features, nn.Linear(96, classes))


def _lstm_layers(inputs: int, widths: tuple[int, ...]) -> list[nn.Module]:
    sizes = pairwise((inputs, *widths))
    return [layer for size, width in sizes for layer in (nn.LSTM(size, width, batch_first=True), SequenceOutputs())]
