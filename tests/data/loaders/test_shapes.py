from __future__ import annotations

import numpy as np

import fedrelay as fr
from fedrelay.data.loaders.shapes import draw_shapes
from fedrelay.data.registry import load_dataset


def test_images_depend_on_the_seed_alone():
    data, again, other = load_dataset("shapes"), draw_shapes(1), draw_shapes(2)
    assert np.array_equal(data.x_train, again.x_train)
    assert np.array_equal(data.y_test, again.y_test)
    assert not np.array_equal(data.x_train, other.x_train)
    assert np.array_equal(draw_shapes(1, clients=3).x_train, data.x_train[:60])


def test_pixels_have_classes_and_objects_are_brighter():
    data = draw_shapes(1)
    assert data.x_train.shape == (400, 1, 16, 16)
    assert data.y_train.shape == (400, 16, 16)
    assert data.x_test.shape == (100, 1, 16, 16)
    assert np.unique(data.y_train).tolist() == [0, 1, 2]
    for image, labels in zip(data.x_train[:, 0], data.y_train, strict=True):
        assert 13 <= (labels > 0).sum() <= 2 * 81  # a disc of radius 2; two squares of radius 4
        assert image[labels > 0].mean() > image[labels == 0].mean() + 40


def test_clients_differ_in_classes_and_brightness():
    data = draw_shapes(1)
    scanners = [np.flatnonzero(data.client_train == client) for client in range(20)]
    discs = [(data.y_train[rows] == 1).sum() / (data.y_train[rows] > 0).sum() for rows in scanners]
    brightness = [data.x_train[rows].mean() for rows in scanners]
    assert min(discs) < 0.1
    assert max(discs) > 0.9
    assert max(brightness) - min(brightness) > 50


def test_the_default_model_of_a_spec_is_the_unet():
    result = fr.run("fedseq", data="shapes", clients=4, rounds=2, workers=1)
    assert (result.metric, len(result.weights)) == ("dice", 29_659)
    assert result.history[-1]["loss"] < result.history[0]["loss"]
