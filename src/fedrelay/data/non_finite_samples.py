"""Finds samples with NaN or infinite values. All samples are read, so it is asked only when a model has gone wrong."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrelay.data.lazy_dataset_samples import READ_AT_ONCE, LazyDatasetSamples
from fedrelay.data.samples import Samples, SampleSource
from fedrelay.errors import DataError


def refuse_non_finite(samples: SampleSource, owner: str) -> None:
    """Check that all values of all samples are finite.

    Args:
        samples: The samples.
        owner: Whose samples they are, for the message, unless they know better themselves.

    Raises:
        DataError: A sample has a NaN or an infinite value.
    """
    for begin in range(0, samples.size, READ_AT_ONCE):
        rows = range(begin, min(begin + READ_AT_ONCE, samples.size))
        for piece in samples.pieces(rows, READ_AT_ONCE, 0):
            wrong = _non_finite_rows(piece)
            if wrong.any():
                row = begin + int(wrong.nonzero()[0])
                place = samples.place(row) if isinstance(samples, LazyDatasetSamples) else ""
                raise DataError(
                    f"{place or f'{owner}, sample {row}'}: has values that are not finite (NaN or infinite); correct "
                    "the sample or leave it out"
                )


def _non_finite_rows(samples: Samples) -> Tensor:
    wrong = [~torch.isfinite(each).flatten(1).all(1) for each in samples.tensors if each.dim() > 1]
    wrong += [~torch.isfinite(each) for each in samples.tensors if each.dim() == 1]
    return torch.stack(wrong).any(0)
