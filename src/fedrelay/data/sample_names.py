"""What tells the test samples of a federation apart, for tables of predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.federation import ArrayFederation, Federation
from fedrelay.data.federation_wrapper import FederationWrapper
from fedrelay.data.public_samples import FederationWithPublicSamples


def sample_names(federation: Federation) -> dict[str, NDArray[Any]]:
    """Column → a value for each test sample, in the order of `federation.test`.

    `sample` is the number of the sample in the test set of the data, from 0, whether or not only some of its samples
    are used. Tables also have the number of the `row`, from 1, and the `id` of a column that was named so. `client` is
    the natural client of the sample, where the data tell.

    Example:
        >>> import fedrelay as fr
        >>> sample_names(fr.load_data("heart-disease"))["client"][[0, -1]].tolist()
        ['cleveland', 'va']
    """
    if isinstance(federation, FederationWithPublicSamples):
        kept = federation.kept_indices
        return {name: column[kept] for name, column in sample_names(federation.inner).items()}
    if isinstance(federation, FederationWrapper):
        return sample_names(federation.inner)
    known = federation.dataset.test_sample_names if isinstance(federation, ArrayFederation) else {}
    return {"sample": np.arange(federation.test.size), **known}
