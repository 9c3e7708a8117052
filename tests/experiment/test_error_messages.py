from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import Field

import fedrelay as fr
from fedrelay.experiment.error_messages import nearest_path
from fedrelay.experiment.sections import Section
from fedrelay.experiment.spec import validate

Weights = Literal["none", "balanced"] | tuple[Annotated[float, Field(ge=0)], ...]


class Inner(Section):
    weights: Weights = "none"


class Outer(Section):
    inner: Inner = Inner()
    several: tuple[Inner, ...] = ()
    period: Annotated[int, Field(gt=0)] | Literal["never"] | None = None
    rate: float = 0.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"inner": {"weights": "balance"}},
            "inner.weights: must be 'none' or 'balanced', or a list such as [a, b], "
            "got 'balance' (did you mean 'balanced'?)",
        ),
        ({"inner": {"weights": 3}}, "inner.weights: must be 'none' or 'balanced', or a list such as [a, b], got 3"),
        ({"inner": {"weights": [1, -2]}}, "inner.weights.1: must be greater than or equal to 0, got -2"),
        ({"several": [{}, {"weights": [1, "x"]}]}, "several.1.weights.1: must be a number, got 'x'"),
        ({"period": 0}, "period: must be 'never', or greater than 0, got 0"),
        ({"rate": "x"}, "rate: must be a number, got 'x'"),
        ({"rate": "x", "inner": {"weights": 3}}, None),
    ],
)
def test_a_value_of_several_types_is_refused_in_one_line(values, message):
    with pytest.raises(fr.SpecError) as refused:
        validate(Outer, values)
    lines = str(refused.value).splitlines()
    assert lines == [message] if message else len(lines) == len(values)


def test_a_missing_path_is_answered_with_a_similar_one_beside_it(tmp_path):
    (tmp_path / "patients.csv").touch()
    assert nearest_path(tmp_path / "patient.csv") == f" (did you mean {str(tmp_path / 'patients.csv')!r}?)"
    assert nearest_path(tmp_path / "wine.npz") == ""
    assert nearest_path(tmp_path / "gone" / "patients.csv") == ""
