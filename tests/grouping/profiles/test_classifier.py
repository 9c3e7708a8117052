from __future__ import annotations

import numpy as np
from tests.grouping.profiles.conftest import profiled

from fedrelay.experiment.spec import TrainSettings
from fedrelay.grouping.profiles.classifier import linear_layers
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.models.zoo import build_model


def test_the_classifier_of_lenet():
    module = build_model("lenet", (3, 32, 32), 10)
    job = TrainingJob(module, FlatLayout.of(module), None, TrainSettings(), (), seed=1)

    def length(which):
        return sum(end - begin for begin, end in linear_layers(job, which))

    assert (length("all"), length("last2"), length("last")) == (690_048, 384 * 192 + 192 * 10, 192 * 10)


def test_the_weights_of_linear_layers_without_biases():
    raw = {"variance": None, "epochs": 1}
    every, last = (
        profiled("clf", **raw).prepared.profiling.vectors,
        profiled("clf", layers="last", **raw).prepared.profiling.vectors,
    )
    assert (every.shape, last.shape) == ((12, 64 * 8 + 8 * 10), (12, 80))
    np.testing.assert_array_equal(every[:, -80:], last)
