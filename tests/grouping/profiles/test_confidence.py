from __future__ import annotations

import numpy as np
from tests.grouping.profiles.conftest import SMALL, profiled

from fedrelay.grouping.profiles.confidence import normalised


def test_confidences_become_shares():
    confidences = np.array([[0.9, 0.3, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(normalised(confidences), [[0.75, 0.25, 0], [1 / 3] * 3])
    np.testing.assert_allclose(normalised(confidences, "softmax")[0], [0.511, 0.281, 0.208], atol=5e-4)


def test_a_client_is_sure_of_the_class_it_holds():
    run = profiled("conf", epochs=40)
    held = [run.prepared.federation.histogram(client).argmax() for client in range(12)]
    assert (run.prepared.profiling.vectors.argmax(axis=1) == held).all()
    assert profiled("conf", normalise="softmax").prepared.profiling.vectors.max() < 0.25


def test_epochs_and_the_settings_of_training_have_an_effect():
    usual = profiled("conf").prepared.profiling.vectors
    np.testing.assert_array_equal(profiled("conf", epochs=10).prepared.profiling.vectors, usual)
    assert not np.array_equal(profiled("conf", epochs=9).prepared.profiling.vectors, usual)
    # What clients train for their profiles is the plain model, whatever the method adds to it.
    np.testing.assert_array_equal(profiled("conf", method="fedseq+fedprox").prepared.profiling.vectors, usual)
    np.testing.assert_array_equal(profiled("conf", settings={**SMALL, "epochs": 3}).prepared.profiling.vectors, usual)
    assert not np.array_equal(profiled("conf", settings={**SMALL, "lr": 0.2}).prepared.profiling.vectors, usual)
