"""Samples with NaN: named when a model goes wrong because of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset

import fedrelay as fr
from fedrelay.data.lazy_dataset_samples import DatasetWithErrorContext, LazyDatasetSamples
from fedrelay.data.non_finite_samples import refuse_non_finite
from fedrelay.data.samples import Samples
from fedrelay.errors import DataError

PROBLEM = r"has values that are not finite \(NaN or infinite\); correct the sample or leave it out"


class Rows(Dataset):
    """Rows of three numbers with two classes; one of them may have a NaN."""

    def __init__(self, bad: int | None = None) -> None:
        self.x = torch.from_numpy(np.random.default_rng(1).normal(size=(80, 3)).astype(np.float32))
        self.targets = (self.x.sum(1) > 0).long()
        if bad is not None:
            self.x[bad, 1] = torch.nan

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[row], self.targets[row]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_sample_of_a_client_is_named_when_its_model_diverges(workers):
    data = fr.federate_datasets({"north": Rows(), "south": Rows(bad=70)}, test=Rows())
    with pytest.raises(DataError, match=f"^client 'south', sample 70: {PROBLEM}$"):
        fr.run("fedavg", data=data, rounds=1, fraction=1.0, workers=workers)


def test_a_bad_test_sample_is_named_at_the_first_evaluation():
    data = fr.federate_datasets({"north": Rows()}, test=Rows(bad=3))
    with pytest.raises(DataError, match=f"^test set, sample 3: {PROBLEM}$"):
        fr.run("fedavg", data=data, rounds=1, fraction=1.0, workers=1)


def test_a_model_that_diverges_by_itself_is_still_called_diverged():
    data = fr.federate_datasets({"north": Rows()}, test=Rows())
    with pytest.raises(fr.DivergedError, match=r"lower train\.lr"):
        fr.run("fedavg", data=data, rounds=2, fraction=1.0, workers=1, lr=1e38)


def test_samples_are_named_by_their_place_in_the_dataset_of_their_owner():
    owned = [DatasetWithErrorContext(f"client {name!r}", Rows(bad)) for name, bad in (("a", None), ("b", 5))]
    chosen = ConcatDataset([Subset(each, list(range(4, 40))) for each in owned])
    with pytest.raises(DataError, match=f"^client 'b', sample 5: {PROBLEM}$"):
        refuse_non_finite(LazyDatasetSamples(chosen), "somebody")
    with pytest.raises(DataError, match=f"^test set, sample 6: {PROBLEM}$"):
        refuse_non_finite(LazyDatasetSamples(Rows(bad=6)), "test set")
    samples = Samples(torch.zeros(3, 2), torch.tensor([1.0, torch.inf, 2.0]))
    with pytest.raises(DataError, match=f"^client 4, sample 1: {PROBLEM}$"):
        refuse_non_finite(samples, "client 4")
    refuse_non_finite(samples.rows(slice(0, 1)), "client 4")
