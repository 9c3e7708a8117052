"""Which classes each client holds, and how much clients differ. Nothing here imports PyTorch."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from fedrelay.metrics.skew import balance_ratio, median_cpd

if TYPE_CHECKING:
    from fedrelay.data.federation import Federation

MOST_CLIENTS = 2000
"""The most clients whose class counts are taken."""

Counts = NDArray[np.int64]
"""One row per client or group, one column per class."""


@dataclass(frozen=True)
class ClientClassCounts:
    """The clients of a federation: every client's size, and the class counts of `counted` clients."""

    name: str
    classes: int
    sizes: NDArray[np.int64]
    counted: NDArray[np.int64]
    counts: Counts
    test_samples: int

    @property
    def clients(self) -> int:
        return len(self.sizes)

    @property
    def samples(self) -> int:
        return int(self.sizes.sum())

    @property
    def classes_held(self) -> NDArray[np.int64]:
        """How many classes each counted client holds."""
        held: NDArray[np.int64] = (self.counts > 0).sum(axis=1)
        return held

    def summary(self) -> dict[str, Any]:
        """Return what `fedrelay data show --json` prints."""
        return {
            "data": self.name,
            "clients": self.clients,
            "classes": self.classes,
            "samples": self.samples,
            "test_samples": self.test_samples,
            "samples_per_client": _range(self.sizes),
            "classes_per_client": _range(self.classes_held),
            "median_cpd": median_cpd(self.counts),
            "balance_ratio": balance_ratio(self.counts.sum(axis=0)),
            "looked_at": len(self.counted),
        }

    def to_bytes(self) -> bytes:
        """The counts as a compressed `.npz` file; equal counts give equal bytes."""
        file = io.BytesIO()
        np.savez_compressed(
            file,
            name=np.array(self.name),
            classes=np.array(self.classes),
            sizes=self.sizes,
            counted=self.counted,
            counts=self.counts,
            test_samples=np.array(self.test_samples),
        )
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what `to_bytes` wrote.

        Raises:
            ValueError: the content is something else.
        """
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as found:
                return cls(
                    name=str(found["name"]),
                    classes=int(found["classes"]),
                    sizes=found["sizes"],
                    counted=found["counted"],
                    counts=found["counts"],
                    test_samples=int(found["test_samples"]),
                )
        except (EOFError, KeyError, OSError, TypeError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f"not a file of class counts ({error})") from None

    def group_counts(self, groups: Sequence[Sequence[int]], most: int) -> dict[int, NDArray[np.int64]]:
        """Add up the class counts of the first groups; groups with uncounted members are left out.

        Args:
            groups: the clients of each group; needs class counts of clients 0, 1, 2, …
            most: the most groups to look at.
        """
        return {
            number: self.counts[list(group)].sum(axis=0)
            for number, group in enumerate(groups[:most])
            if group and max(group) < len(self.counts)
        }


def count_classes(federation: Federation, *, first: bool = False) -> ClientClassCounts:
    """Count the classes of a federation's clients.

    Args:
        federation: the clients.
        first: of very many clients count the first, instead of evenly chosen ones.
    """
    clients, most = federation.client_count, min(federation.client_count, MOST_CLIENTS)
    counted = np.arange(most) if first else np.unique(np.linspace(0, clients - 1, most).astype(np.int64))
    return ClientClassCounts(
        name=federation.name,
        classes=federation.class_count,
        sizes=federation.sample_counts(),
        counted=counted,
        counts=np.stack([federation.histogram(client) for client in counted.tolist()]),
        test_samples=federation.test.size,
    )


def merge_classes(counts: Counts, most: int) -> tuple[Counts, list[str]]:
    """Add up neighbouring classes until at most `most` columns are left.

    Returns:
        The counts, and the name of each column: `7`, or `12–15` for merged classes.
    """
    classes = counts.shape[1]
    if classes <= most:
        return counts, list(map(str, range(classes)))
    starts = np.arange(most) * classes // most
    ends = [*(starts[1:] - 1), classes - 1]
    names = [str(low) if low == high else f"{low}–{high}" for low, high in zip(starts, ends, strict=True)]
    merged: Counts = np.add.reduceat(counts, starts, axis=1)
    return merged, names


def _range(values: NDArray[np.int64]) -> dict[str, float]:
    return {"min": int(values.min()), "median": float(np.median(values)), "max": int(values.max())}
