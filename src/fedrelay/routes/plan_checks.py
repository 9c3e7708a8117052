"""Checks of what a route plans: mistakes show when a round is planned, not while it is trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import index
from typing import get_args

from fedrelay.routes.plan import Handover, RoundPlan, Route


def checked_plan(plan: object, round: int) -> RoundPlan:
    """The plan that a route made for a round, with plain tuples of plain numbers.

    Whole numbers of other types, such as those of NumPy, become plain ones: a plan is sent, saved and compared.

    Args:
        plan: What the route returned.
        round: The round that was to be planned, counted from the first round of the phase.

    Raises:
        TypeError: It is no plan, or a part of it has the wrong type.
        ValueError: It plans another round, no hop at all, or something that cannot be done.
    """
    if not isinstance(plan, RoundPlan):
        raise TypeError(f"must return a RoundPlan, got {type(plan).__name__}")
    if plan.round != round:
        raise ValueError(f"must plan round {round}, got a plan of round {plan.round}")
    if plan.handover not in get_args(Handover):
        raise ValueError(f"unknown handover {plan.handover!r}; allowed: {', '.join(get_args(Handover))}")
    routes = tuple(_checked_routes(plan.routes))
    if not plan.real_arrivals and not any(route.clients for route in routes):
        raise ValueError("no route has a client; a round needs at least one hop")
    if not plan.merges and any(route.slot is None for route in routes):
        raise ValueError("merges is False, but a route has no slot in which its model can wait")
    return replace(plan, round=round, routes=routes, merges=bool(plan.merges))


def _checked_routes(routes: object) -> Iterator[Route]:
    if not isinstance(routes, Iterable):
        raise TypeError(f"routes must be a tuple of fedrelay.Route objects, such as (route,), got {routes!r}")
    for route in routes:
        if not isinstance(route, Route):
            raise TypeError(f"routes must be fedrelay.Route objects, got {route!r}")
        slot = None if route.slot is None else _whole([route.slot], "the slots of routes")[0]
        clients = _whole(route.clients, "the clients of a route")
        order = _whole(route.order, "the order of a route")
        if order and len(order) != len(clients):
            raise ValueError(f"order must have one number for each of the {len(clients)} hops, got {len(order)}")
        yield replace(route, clients=clients, slot=slot, order=order)


def _whole(numbers: Iterable[int], what: str) -> tuple[int, ...]:
    try:
        return tuple(map(index, numbers))
    except TypeError:
        raise TypeError(f"{what} must be whole numbers, got {numbers!r}") from None
