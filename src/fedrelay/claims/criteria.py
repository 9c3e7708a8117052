"""Criteria as text: `fedseq.accuracy_last - fedavg.accuracy_last >= 0.05`.

Python's own parser reads them, and a short list says what may stand there: numbers, names, attributes, + − * /,
comparisons, and / or / not, and the functions of `subjects.FUNCTIONS`. Anything else is a `SpecError`. Nothing is ever
executed: the tree is walked by hand.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from fedrelay.claims.subjects import FUNCTIONS, Never, Subject, Undecided
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import unknown

LONGEST = 1000
"""No criterion has more characters."""

DEEPEST = 40
"""Nor more levels."""

Dotted = tuple[str, ...]
"""A dotted name."""

_ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_SIGNS: Mapping[type[ast.unaryop], Callable[[float], float]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
SIGNS: Mapping[type[ast.cmpop], str] = {ast.GtE: ">=", ast.Gt: ">", ast.LtE: "<=", ast.Lt: "<", ast.Eq: "=="}
"""The comparisons there are."""


@dataclass(frozen=True)
class Comparison:
    """Two values and how they should stand to each other."""

    left: ast.expr
    sign: str
    right: ast.expr

    def __str__(self) -> str:
        """As it was written, but for spaces."""
        return f"{ast.unparse(self.left)} {self.sign} {ast.unparse(self.right)}"

    def margin(self, left: float, right: float) -> float:
        """By how much it is kept; negative where it is not."""
        if self.sign == "==":
            return -abs(left - right) if left != right else 0.0
        return left - right if self.sign.startswith(">") else right - left

    def keeps(self, margin: float) -> bool:
        """Whether such a margin is enough."""
        return kept(self.sign, margin)


def kept(sign: str, margin: float) -> bool:
    """Whether a comparison with such a margin is kept; none at all is enough where equality is allowed."""
    return margin > 0 or (margin == 0 and "=" in sign)


@dataclass(frozen=True)
class Junction:
    """Several criteria joined: all of them, any of them, or not the one."""

    kind: str
    parts: tuple[Criterion, ...]


Criterion = Comparison | Junction


@dataclass(frozen=True)
class Scope:
    """What names stand for with one seed, and what stands in for costs of what was never reached."""

    resolve: Callable[[Dotted], Subject]
    never: Never

    def value(self, node: ast.expr) -> float:
        """The number that an expression stands for."""
        match node:
            case ast.Constant(value=number):
                return float(number)  # type: ignore[arg-type]
            case ast.UnaryOp(op=sign, operand=operand):
                return _SIGNS[type(sign)](self.value(operand))
            case ast.BinOp(left=left, op=sign, right=right):
                try:
                    return _ARITHMETIC[type(sign)](self.value(left), self.value(right))
                except ZeroDivisionError:
                    raise Undecided(f"{ast.unparse(node)}: division by zero") from None
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return self._call(name, arguments)
            case ast.Attribute(value=owner, attr=measure):
                return self.resolve(_dotted(owner)).measure(measure)
        raise AssertionError(ast.dump(node))

    def _call(self, name: str, arguments: list[ast.expr]) -> float:
        function = FUNCTIONS[name]
        subjects = [self.resolve(_dotted(argument)) for argument in arguments[: function.subjects]]
        numbers = [self.value(argument) for argument in arguments[function.subjects :]]
        known = (self.never,) if function.per_run else ()
        return float(function.apply(*known, *subjects, *numbers))


def parse(text: str) -> Criterion:
    """Read a criterion, or say what is wrong with it."""
    if len(text) > LONGEST:
        raise SpecError(f"criterion: must not be longer than {LONGEST} characters, got {len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else "cannot be read"
        raise SpecError(f"criterion {text!r}: {reason}") from None
    return _criterion(tree, text, DEEPEST)


def comparisons(criterion: Criterion) -> Iterator[Comparison]:
    """All comparisons, from left to right."""
    if isinstance(criterion, Comparison):
        yield criterion
    else:
        for part in criterion.parts:
            yield from comparisons(part)


def names(criterion: Criterion) -> Iterator[tuple[Dotted, str | None]]:
    """Every subject that is named, and the measure asked of it, if it is not a function's argument."""
    for comparison in comparisons(criterion):
        yield from _named(comparison.left)
        yield from _named(comparison.right)


def _named(node: ast.expr) -> Iterator[tuple[Dotted, str | None]]:
    match node:
        case ast.Attribute(value=owner, attr=measure):
            yield _dotted(owner), measure
        case ast.Call(func=ast.Name(id=name), args=arguments):
            subjects = FUNCTIONS[name].subjects
            yield from ((_dotted(argument), None) for argument in arguments[:subjects])
            for argument in arguments[subjects:]:
                yield from _named(argument)
        case ast.BinOp(left=left, right=right):
            yield from _named(left)
            yield from _named(right)
        case ast.UnaryOp(operand=operand):
            yield from _named(operand)


def _criterion(node: ast.expr, text: str, depth: int) -> Criterion:
    if depth == 0:
        raise SpecError(f"criterion {text!r}: is nested too deeply")
    match node:
        case ast.BoolOp(op=op, values=values):
            kind = "all" if isinstance(op, ast.And) else "any"
            return Junction(kind, tuple(_criterion(value, text, depth - 1) for value in values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return Junction("not", (_criterion(operand, text, depth - 1),))
        case ast.Compare(left=left, ops=signs, comparators=others):
            sides = [left, *others]
            for side in sides:
                _check_number(side, text, depth - 1)
            for sign in signs:
                if type(sign) not in SIGNS:
                    _refuse(text, node, f"compares by one of {', '.join(SIGNS.values())}")
            pairs = zip(sides, signs, sides[1:], strict=False)
            parts = tuple(Comparison(one, SIGNS[type(sign)], other) for one, sign, other in pairs)
            return parts[0] if len(parts) == 1 else Junction("all", parts)
    return _refuse(text, node, "must be a comparison, such as 'fedseq.accuracy > 0.5'")


def _check_number(node: ast.expr, text: str, depth: int) -> None:
    """See whether an expression can be a number, by the list of what may stand there."""
    if depth <= 0:
        raise SpecError(f"criterion {text!r}: is nested too deeply")
    match node:
        case ast.Constant(value=bool() | str() | bytes() | complex() | None):
            _refuse(text, node, "is not a number")
        case ast.Constant(value=int() | float() as number):
            if abs(number) > 1e300 or (isinstance(number, float) and not math.isfinite(number)):
                _refuse(text, node, "is too large")
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
            _check_number(operand, text, depth - 1)
        case ast.BinOp(left=left, op=operation, right=right):
            if type(operation) not in _ARITHMETIC:
                _refuse(text, node, "calculates by something else than + - * /")
            _check_number(left, text, depth - 1)
            _check_number(right, text, depth - 1)
        case ast.Call():
            _check_call(node, text, depth)
        case ast.Attribute(value=owner):
            _check_subject(owner, text)
        case ast.Name(id=name):
            _refuse(text, node, f"is no number; a measure is an attribute, such as {name}.accuracy")
        case _:
            _refuse(text, node, "must not stand in a criterion")


def _check_call(node: ast.Call, text: str, depth: int) -> None:
    if not isinstance(node.func, ast.Name) or node.keywords:
        _refuse(text, node, f"calls something else than a function with plain arguments: {', '.join(FUNCTIONS)}")
    name = node.func.id
    if name not in FUNCTIONS:
        raise SpecError(f"criterion {text!r}: {unknown('function', name, FUNCTIONS)}")
    function = FUNCTIONS[name]
    wanted = None if function.numbers is None else function.subjects + function.numbers
    if not node.args or (wanted is not None and len(node.args) != wanted):
        _refuse(text, node, f"takes {wanted or 'one or more'} arguments, {len(node.args)} are given")
    for argument in node.args[: function.subjects]:
        _check_subject(argument, text)
    for argument in node.args[function.subjects :]:
        _check_number(argument, text, depth - 1)


def _check_subject(node: ast.expr, text: str) -> None:
    while isinstance(node, ast.Attribute):
        node = node.value
    if not isinstance(node, ast.Name):
        _refuse(text, node, "must be a name, such as fedseq or alpha_0.fedseq")


def _dotted(node: ast.expr) -> Dotted:
    if isinstance(node, ast.Attribute):
        return (*_dotted(node.value), node.attr)
    assert isinstance(node, ast.Name)
    return (node.id,)


def _refuse(text: str, node: ast.expr, reason: str) -> NoReturn:
    try:
        shown = ast.unparse(node)
    except (ValueError, RecursionError):
        shown = type(node).__name__
    raise SpecError(f"criterion {text!r}: {shown!r} {reason}")
