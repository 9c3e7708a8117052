from __future__ import annotations

from fedrelay.grouping.grouping import Grouping
from fedrelay.grouping.profiles import ProfileInputs


def test_random_groups_stay_what_they_were(make_clients):
    equal = make_clients([[100]] * 24 + [[0]])
    assert Grouping().form_groups(ProfileInputs(equal, 1)) == (
        (1, 18, 23, 12, 9, 16, 21, 22),
        (13, 7, 15, 11, 4, 14, 3, 5),
        (0, 8, 6, 2, 17, 10, 19, 20),
    )
    sizes = [100, 0, 120, 90, 60, 100, 100, 200, 0, 30, 100, 100]
    unequal = make_clients([[size] for size in sizes])
    assert Grouping(max_clients=4, min_samples=250).form_groups(ProfileInputs(unequal, 7)) == (
        (0, 4, 11),
        (10, 2, 6),
        (5, 9, 3, 7),
    )
