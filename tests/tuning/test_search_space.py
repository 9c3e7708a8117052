from __future__ import annotations

from fedrelay.experiment.method_hyperparameters import Hyperparameter
from fedrelay.tuning.search_space import Point, SearchSpace

OWN = Hyperparameter("terms.prox.mu", (0.1, 1.0))


def test_learning_rates_have_equal_factors():
    assert SearchSpace.around(0.05, 8, 4).rates == (0.00625, 0.025, 0.1, 0.4)
    assert SearchSpace.around(1, 2, 3).rates == (0.5, 1.0, 2.0)


def test_methods_have_equally_many_points_over_the_same_learning_rates():
    plain, with_own = SearchSpace.around(1, 4, 5), SearchSpace.around(1, 4, 5, OWN)
    assert [point.lr for point in plain.points()] == [point.lr for point in with_own.points()]
    assert [point.value for point in plain.points()] == [None] * 5
    assert [point.value for point in with_own.points()] == [0.1, 1.0, 0.1, 1.0, 0.1]
    assert with_own.settings(with_own.points()[1]) == {"train.lr": 0.5, "terms.prox.mu": 1.0}
    assert plain.settings(plain.points()[0]) == {"train.lr": 0.25}


def test_the_edge_is_the_smallest_or_largest_learning_rate_so_far():
    space = SearchSpace.around(1, 4, 3, OWN)  # 0.25, 1, 4: factors of 4
    points = space.points()
    assert space.beyond(points[1], points) is None
    assert space.beyond(points[2], points) == Point(16.0, 0.1)
    assert space.beyond(points[0], points) == Point(0.0625, 0.1)
    assert space.beyond(points[2], [*points, Point(16.0)]) is None
    fine = SearchSpace.around(1, 1.21, 5)  # a step beyond is at least a factor of 2
    assert fine.beyond(fine.points()[-1], fine.points()) == Point(2.42)
