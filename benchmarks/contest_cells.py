"""The sets of clients of the contest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedrelay.routes.base import sampled_count


@dataclass(frozen=True)
class Cell:
    """Clients, a model, and how long they train."""

    name: str
    title: str
    data: str
    rounds: int
    settings: Mapping[str, Any]
    client_count: int = 100
    frozen: bool = False
    """Whether our own method was settled before this cell was run for the first time."""

    @property
    def clients_per_round(self) -> int:
        return sampled_count(self.client_count, self.settings["fraction"])


def _images(name: str, title: str, data: str, alpha: float, fraction: float, *, frozen: bool, **other: Any) -> Cell:
    settings = {"clients": 100, "alpha": alpha, "fraction": fraction, "batch_size": 10, **other}
    title = f"{title}, α = {alpha:g}, C = {fraction:g}"
    return Cell(name, title, data, settings.pop("rounds"), settings, settings["clients"], frozen)


_FASHION = {"samples": 6000, "test_samples": 2000, "model": "mlp", "rounds": 60}
_CIFAR = {"samples": 4000, "test_samples": 2000, "model": "cnn-s", "rounds": 60, "clients": 50}
CELLS = (
    _images("digits-0", "Digits", "digits", 0.0, 0.2, frozen=False, model="mlp", rounds=60),
    _images("digits-0.1", "Digits", "digits", 0.1, 0.05, frozen=True, model="mlp", rounds=120),
    _images("digits-0.5", "Digits", "digits", 0.5, 0.2, frozen=False, model="mlp", rounds=60),
    _images("fashion-0", "Fashion-MNIST", "fashion-mnist", 0.0, 0.2, frozen=False, **_FASHION),
    _images("fashion-0-few", "Fashion-MNIST", "fashion-mnist", 0.0, 0.05, frozen=True, **{**_FASHION, "rounds": 160}),
    _images("fashion-0.1", "Fashion-MNIST", "fashion-mnist", 0.1, 0.2, frozen=True, **_FASHION),
    _images("fashion-0.5", "Fashion-MNIST", "fashion-mnist", 0.5, 0.1, frozen=False, **{**_FASHION, "rounds": 100}),
    _images("cifar-0", "CIFAR-10", "cifar10", 0.0, 0.2, frozen=False, **_CIFAR),
    _images("cifar-0.1", "CIFAR-10", "cifar10", 0.1, 0.1, frozen=True, **{**_CIFAR, "rounds": 100}),
    _images("cifar-0.5", "CIFAR-10", "cifar10", 0.5, 0.2, frozen=True, **_CIFAR),
    Cell(
        "femnist",
        "FEMNIST, 100 writers, C = 0.1",
        "femnist",
        50,
        {"clients": 100, "fraction": 0.1, "model": "cnn-s", "batch_size": 10},
    ),
    Cell(
        "femnist-all",
        "FEMNIST, 16 writers, C = 1",
        "femnist",
        48,
        {"clients": 16, "fraction": 1.0, "model": "cnn-s", "batch_size": 10},
        client_count=16,
        frozen=True,
    ),
    Cell(
        "hospitals", "Heart disease, four hospitals, C = 1", "heart-disease", 20, {"fraction": 1.0, "batch_size": 16}, 4
    ),
    Cell(
        "hospitals-half",
        "Heart disease, four hospitals, C = 0.5",
        "heart-disease",
        40,
        {"fraction": 0.5, "batch_size": 16},
        client_count=4,
        frozen=True,
    ),
    Cell("vowel", "Vowels, 15 speakers, C = 0.4", "vowel", 60, {"fraction": 0.4, "model": "mlp", "batch_size": 8}, 15),
    Cell(
        "shakespeare",
        "Shakespeare, 40 roles, C = 0.2",
        "shakespeare",
        30,
        {"clients": 40, "fraction": 0.2, "batch_size": 32, "samples": 4000, "test_samples": 2000},
        client_count=40,
        frozen=True,
    ),
)
