"""Criteria: what may stand there, what it means, and that nothing is ever executed."""

from __future__ import annotations

import ast
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.claims.criteria import Scope, comparisons, names, parse
from fedrelay.claims.subjects import FUNCTIONS, Function, Subject, Undecided
from fedrelay.errors import SpecError

CURVE = [{"round": t, "accuracy": t / 10, "client_updates": 2 * t, "virtual_seconds": 5.0 * t} for t in range(1, 9)]
SUBJECTS = {
    ("a",): Subject("a", {"accuracy": 0.5, "loss": 2.0}, CURVE, rounds=8),
    ("x", "b"): Subject("b", {"accuracy": 0.25, "loss": None}, CURVE[1:], rounds=8),
    ("gone",): Subject("gone", {}, problem="seed 1 was not run"),
}


def value(text: str) -> float:
    """What the left side of `text >= 0` stands for."""
    (comparison,) = comparisons(parse(f"{text} >= 0"))
    return Scope(SUBJECTS.__getitem__, Subject.bound).value(comparison.left)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.accuracy - x.b.accuracy", 0.25),
        ("2 * -a.loss / 4 + +1", 0.0),
        ("min(a.accuracy, 3, x.b.accuracy)", 0.25),
        ("max(1, 2)", 2.0),
        ("abs(x.b.accuracy - a.accuracy)", 0.25),
        ("mean(1, 2, 6)", 3.0),
        ("spread(1, 4, 2)", 3.0),
        ("rounds_to(a, 0.3)", 3.0),
        ("rounds_to(x.b, 0.1)", 2.0),
        ("updates_to(a, 0.3)", 6.0),
        ("time_to(a, 0.3)", 15.0),
        ("rounds_to(a, 0.9)", 9.0),
        ("time_to(a, 0.9)", 45.0),
        ("speed_up(a, x.b, 0.2)", 1.0),
        ("speed_up(a, x.b, a.accuracy)", 1.0),
        ("paper_cost(10)", 120.0),
        ("gsp_bytes(1)", 2 * 0.3 * 368 * 25.2e6),
    ],
)
def test_values(text, expected):
    assert value(text) == pytest.approx(expected, rel=1e-12)


def test_the_mean_number_of_groups_of_fedseq2par():
    assert value("mean_groups(500, 5, 10000)") == pytest.approx(105.09, abs=0.005)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x.b.loss", "b has no loss"),
        ("gone.accuracy", "gone: seed 1 was not run"),
        ("rounds_to(gone, 0.5)", "gone: seed 1 was not run"),
        ("1 / (a.accuracy - 0.5)", "1 / (a.accuracy - 0.5): division by zero"),
    ],
)
def test_what_cannot_be_worked_out_is_undecided(text, message):
    with pytest.raises(Undecided) as undecided:
        value(text)
    assert str(undecided.value) == message


def test_chains_and_words_join_comparisons():
    criterion = parse("a.accuracy > x.b.accuracy >= 0.1 and not (a.loss < 1 or a.loss == 3)")
    assert [str(each) for each in comparisons(criterion)] == [
        "a.accuracy > x.b.accuracy", "x.b.accuracy >= 0.1", "a.loss < 1", "a.loss == 3",
    ]  # fmt: skip


def test_names_are_found():
    criterion = parse("speed_up(a, x.b, 0.7 * c.accuracy) >= 3 and abs(-d.loss) < 1")
    expected = [(("a",), None), (("x", "b"), None), (("c",), "accuracy"), (("d",), "loss")]
    assert list(names(criterion)) == expected


@pytest.mark.parametrize(
    ("sign", "left", "right", "margin"),
    [(">=", 3, 1, 2), (">", 1, 3, -2), ("<=", 1, 3, 2), ("<", 3, 1, -2), ("==", 2, 2, 0), ("==", 1, 3, -2)],
)
def test_margins(sign, left, right, margin):
    (comparison,) = comparisons(parse(f"a.accuracy {sign} 1"))
    assert comparison.margin(left, right) == margin


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.accuracy", "'a.accuracy' must be a comparison"),
        ("", "invalid syntax"),
        ("a.accuracy >", "invalid syntax"),
        ("a.accuracy >= 'x'", "is not a number"),
        ("a.accuracy >= True", "is not a number"),
        ("a.accuracy >= None", "is not a number"),
        ("a.accuracy >= 1j", "is not a number"),
        ("a.accuracy >= 1e999", "is too large"),
        (f"a.accuracy >= {10**400}", "is too large"),
        ("a >= 1", "is no number; a measure is an attribute, such as a.accuracy"),
        ("a.accuracy ** 2 >= 1", "calculates by something else than + - * /"),
        ("a.accuracy % 2 >= 1", "calculates by something else than + - * /"),
        ("a.accuracy != 1", "compares by one of >=, >, <=, <, =="),
        ("a.accuracy in (1, 2)", "must not stand in a criterion"),
        ("a['accuracy'] >= 1", "must not stand in a criterion"),
        ("(lambda: 1)() >= 1", "calls something else than a function with plain arguments"),
        ("__import__('os').system('true') >= 1", "calls something else than a function"),
        ("open('x') >= 1", "unknown function 'open'"),
        ("maxi(1, 2) >= 1", "unknown function 'maxi' (did you mean 'max'?)"),
        ("abs(1, 2) >= 1", "takes 1 arguments, 2 are given"),
        ("min() >= 1", "takes one or more arguments, 0 are given"),
        ("min(*a) >= 1", "must not stand in a criterion"),
        ("min(default=1) >= 1", "calls something else than a function with plain arguments"),
        ("rounds_to(1, 2) >= 1", "must be a name, such as fedseq"),
        ("rounds_to(a.b(), 2) >= 1", "must be a name, such as fedseq"),
        ("f'{a}' >= 1", "must not stand in a criterion"),
        ("(a := 1) >= 1", "must not stand in a criterion"),
        ("[x for x in a] >= 1", "must not stand in a criterion"),
        ("1 if a else 2", "must be a comparison"),
        ("a.accuracy >= 1; import os", "invalid syntax"),
        ("a.accuracy >= " + "-" * 60 + "1", "nested too deeply"),
        ("not " * 60 + "a.accuracy >= 1", "nested too deeply"),
        ("1 >= " + "1" * 1000, "must not be longer than 1000 characters"),
        ("a.accuracy >= 1\x00", "criterion"),
    ],
)
def test_anything_else_is_refused_with_a_reason(text, message):
    with pytest.raises(SpecError) as refused:
        parse(text)
    assert message in str(refused.value)


WORDS = st.sampled_from(
    [*"abx+-*/%(),.><:[]{};#", "accuracy", "loss", "0.5", "-3", "**", "//", ">=", "<=", "==", "!=", "and", "or", "not",
     "if", "else", "lambda", "min", "max", "abs", "rounds_to", "speed_up", "__import__", "eval", "exec", "open", "os",
     "__class__", "__globals__", "'text'", "f''", "True", "None", "await", ":="]
)  # fmt: skip
HARMLESS = (
    ast.Constant, ast.UnaryOp, ast.USub, ast.UAdd, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Attribute,
    ast.Name, ast.Load, ast.Call,
)  # fmt: skip


@given(st.lists(WORDS, max_size=14).map(" ".join) | st.text(max_size=60))
def test_any_text_is_harmless_or_a_clear_error(text):
    """Whatever it is made of: only what is on the short list comes through, and calls are calls of our functions."""
    try:
        criterion = parse(text)
    except SpecError as refused:
        message = str(refused)
    else:
        message = "criterion"
        nodes = [n for each in comparisons(criterion) for side in (each.left, each.right) for n in ast.walk(side)]
        assert all(isinstance(node, HARMLESS) for node in nodes)
        assert all(node.func.id in FUNCTIONS for node in nodes if isinstance(node, ast.Call))
        assert all(type(node.value) in (int, float) for node in nodes if isinstance(node, ast.Constant))
    assert message.startswith("criterion")


def test_reading_a_criterion_does_nothing(monkeypatch):
    touched: list[str] = []
    trap = Function(0, None, lambda *values: touched.append("called") or 0.0, "a trap")
    monkeypatch.setitem(FUNCTIONS, "trap", trap)
    assert list(names(parse("trap(1, 2) >= trap(3)"))) == []
    assert touched == []


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.sampled_from("+-*/"))
def test_arithmetic_is_that_of_python(left, right, sign):
    subjects = {("l",): Subject("l", {"loss": left}), ("r",): Subject("r", {"loss": right})}
    (comparison,) = comparisons(parse(f"l.loss {sign} r.loss >= 0"))
    scope = Scope(subjects.__getitem__, Subject.bound)
    if sign == "/" and right == 0:
        with pytest.raises(Undecided):
            scope.value(comparison.left)
        return
    expected = {"+": left + right, "-": left - right, "*": left * right, "/": left / right if right else math.nan}
    assert scope.value(comparison.left) == expected[sign]


def test_every_function_says_what_it_is():
    assert all(function.about for function in FUNCTIONS.values())
