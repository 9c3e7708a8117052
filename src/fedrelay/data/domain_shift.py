"""Domain shift: images as they would look if clients recorded them differently.

A shift changes raw pixel values, before they are scaled to model inputs. Rotation is counter-clockwise and repeats the
border in empty corners; rotating a square image by 90 degrees is exact. Inversion swaps dark and bright, noise adds
Gaussian noise, contrast moves each pixel towards the mean of its image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import unknown

Range = tuple[float, float]

SHIFTS: Mapping[str, float] = MappingProxyType(
    {"none": 0.0, "rotation": 45.0, "inversion": 1.0, "noise": 0.25, "contrast": 0.3}
)
"""Name → default strength: degrees; share of the way to the inverted value; standard deviation of the noise as a share
of the value range; share of the contrast that is kept."""


def apply_shift(
    name: str,
    images: Tensor,
    rng: np.random.Generator,
    *,
    values: Range = (0.0, 1.0),
    strength: float | None = None,
) -> Tensor:
    """Shift float images `[n, channels, height, width]`.

    Args:
        name: A name of `SHIFTS`.
        images: The images.
        rng: Generator for the noise.
        values: The range of raw pixel values.
        strength: Default see `SHIFTS`.
    """
    check_shifts([name], "image")
    if name == "none":
        return images
    if images.ndim != 4:
        raise SpecError(f"shift {name!r} needs images [n, channels, height, width], got shape {list(images.shape)}")
    return _APPLY[name](images, SHIFTS[name] if strength is None else strength, values, rng)


def check_shifts(names: Sequence[str], kind: str) -> None:
    """Refuse unknown names, and shifts of samples that are not images."""
    for name in names:
        if name not in SHIFTS:
            raise SpecError(unknown("shift", name, SHIFTS))
        if name != "none" and kind != "image":
            raise SpecError(f"shift {name!r} needs images; these samples are {kind}, for which only 'none' is allowed")


def _rotate(images: Tensor, degrees: float, values: Range, rng: np.random.Generator) -> Tensor:
    height, width = images.shape[-2:]
    if degrees % 90 == 0 and height == width:
        return torch.rot90(images, int(degrees // 90), (-2, -1))
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    rotation = torch.tensor([[cos, -sin * height / width, 0.0], [sin * width / height, cos, 0.0]])
    grid = torch.nn.functional.affine_grid(rotation[None], [1, *images.shape[1:]], align_corners=False)
    grid = grid.expand(len(images), -1, -1, -1)
    return torch.nn.functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def _invert(images: Tensor, share: float, values: Range, rng: np.random.Generator) -> Tensor:
    low, high = values
    return images + share * (low + high - 2 * images)


def _add_noise(images: Tensor, level: float, values: Range, rng: np.random.Generator) -> Tensor:
    low, high = values
    noise = torch.from_numpy(rng.standard_normal(images.shape, dtype=np.float32))
    return (images + level * (high - low) * noise).clamp(low, high)


def _flatten(images: Tensor, share: float, values: Range, rng: np.random.Generator) -> Tensor:
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    return mean + share * (images - mean)


_APPLY: Mapping[str, Callable[[Tensor, float, Range, np.random.Generator], Tensor]] = {
    "rotation": _rotate,
    "inversion": _invert,
    "noise": _add_noise,
    "contrast": _flatten,
}
