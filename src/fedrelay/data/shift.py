"""Domain shift: the same images as different holders would have recorded them.

A shift acts on raw pixel values, before they are scaled to model inputs. Rotation turns counter-clockwise and
repeats the border where the turned image leaves a corner empty; a quarter turn of a square image is exact.
Inversion swaps dark and bright, noise adds a Gaussian grain, contrast pulls every image towards its own mean.
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
"""The names of the shifts and their usual strength: degrees, share of the way to the mirrored value, standard
deviation of the noise as a share of the value range, share of the contrast that is left."""


def apply_shift(
    name: str,
    images: Tensor,
    rng: np.random.Generator,
    *,
    values: Range = (0.0, 1.0),
    strength: float | None = None,
) -> Tensor:
    """The shifted float images `[n, channels, height, width]`, whose raw values lie within `values`."""
    check_shifts([name], "image")
    if name == "none":
        return images
    if images.ndim != 4:
        raise SpecError(f"shift {name!r} needs images [n, channels, height, width], got shape {list(images.shape)}")
    return _APPLY[name](images, SHIFTS[name] if strength is None else strength, values, rng)


def check_shifts(names: Sequence[str], kind: str) -> None:
    """Refuse unknown names, and any shift of what is not an image."""
    for name in names:
        if name not in SHIFTS:
            raise SpecError(unknown("shift", name, SHIFTS))
        if name != "none" and kind != "image":
            raise SpecError(
                f"shift {name!r} changes images; these samples are of kind {kind!r}, which allows only 'none'"
            )


def _rotate(images: Tensor, degrees: float, values: Range, rng: np.random.Generator) -> Tensor:
    height, width = images.shape[-2:]
    if degrees % 90 == 0 and height == width:
        return torch.rot90(images, int(degrees // 90), (-2, -1))
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    turn = torch.tensor([[cos, -sin * height / width, 0.0], [sin * width / height, cos, 0.0]])
    grid = torch.nn.functional.affine_grid(turn[None], [1, *images.shape[1:]], align_corners=False)
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
