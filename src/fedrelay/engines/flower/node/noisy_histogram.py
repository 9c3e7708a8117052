"""The noisy class counts of a node, drawn once and kept: the mean of many draws would be the exact counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.noisy_counts import noisy_counts
from fedrelay.errors import DataError
from fedrelay.files import write_atomically
from fedrelay.rng import secret_uniform

FILE = "noisy-histogram.json"


def noisy_histogram(folder: Path, counts: NDArray[np.int64], epsilon: float) -> tuple[int, ...]:
    """Counts with noise; the same again for the same counts and the same `epsilon`.

    Raises:
        DataError: The file that keeps them is damaged.
    """
    path, wanted = folder / FILE, {"epsilon": epsilon, "exact": counts.tolist()}
    known = _read(path)
    for drawn in known:
        if {"epsilon": drawn["epsilon"], "exact": drawn["exact"]} == wanted:
            return tuple(drawn["noisy"])
    noisy = noisy_counts(counts, epsilon, secret_uniform(2 * len(counts))).tolist()
    content = json.dumps([*known, {**wanted, "noisy": noisy}]).encode()
    write_atomically(path, content, mode=0o600)
    return tuple(noisy)


def epsilons_of_draws(folder: Path) -> list[float]:
    """The ε of every draw that was ever sent; what the server knows has their sum."""
    return [drawn["epsilon"] for drawn in _read(folder / FILE)]


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        found = [{name: each[name] for name in ("epsilon", "exact", "noisy")} for each in json.loads(path.read_bytes())]
        if all(len(each["noisy"]) == len(each["exact"]) for each in found):
            return found
        reason = "a draw has another number of classes than its counts"
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = f"{type(error).__name__}: {error}"
    raise DataError(
        f"{path}: is damaged ({reason}); remove it to draw new noise, which tells the server more about the counts"
    )
