"""Refuses sealed experiments that nodes would decline, and warns of those that show some clients more than others."""

from __future__ import annotations

from fedrelay.errors import SpecError
from fedrelay.local.sealed_route_rules import erasing_settings, least_clients, uneven_payload, uneven_rates
from fedrelay.local.trainer import TrainingJob
from fedrelay.routes.base import Routing
from fedrelay.routes.plan import Hop, RoundPlan


def check_sealed_plan(plan: RoundPlan, job: TrainingJob) -> None:
    """Refuse a sealed round whose models would show the server the work of single clients.

    Nodes check the same before every hop, because they need not trust the server.

    Raises:
        SpecError: A sealed route has too few clients, shares clients that keep state with another, or has settings
            with which the work of a client outweighs that of the others.
    """
    if name := uneven_payload(job.terms):
        raise SpecError(
            f"route.handover: 'sealed' cannot hide {name!r}, which travels with the model and shows the last client "
            "most; use a method without it (train.optimizer_state=reset or client), or 'server'"
        )
    if job.needs_waves(plan):
        raise SpecError(
            f"route.handover: 'sealed' is not possible in round {plan.round}, where routes share clients that keep "
            "state; use a method without client state, or 'server'"
        )
    least = least_clients(job.terms)
    for number, route in enumerate(plan.routes):
        if route.clients and (found := len(set(route.clients))) < least:
            clients = "1 client" if found == 1 else f"{found} clients"
            raise SpecError(
                f"route.handover: 'sealed' needs {least} clients or more on every route of this method: the server "
                f"sees its end; route {number} of round {plan.round} has {clients}; use larger groups, or 'server'"
            )
        hops = [Hop(plan.round, number, k, client, 0, len(route.clients)) for k, client in enumerate(route.clients)]
        problems = (uneven_rates(job, hop) for hop in hops[:1]), (erasing_settings(job, hop) for hop in hops)
        for problem in (each for group in problems for each in group if each):
            raise SpecError(f"{problem}; or set route.handover=server")


def last_client_warning(plan: RoundPlan, route: Routing) -> str:
    """Who is shown more than others, because the end of a route shows its last client most; empty if it is chance.

    Args:
        plan: A sealed round.
        route: What planned it.
    """
    chains = [route.clients for route in plan.routes if len(route.clients) > 1]
    if len(chains) > 1 and {chain[-1] for chain in chains} == set().union(*chains):
        return (
            "route.handover: every client is the last of a sealed route in each round, and the end of a route shows "
            "its last client most; fedseq and fedcyclic show one client of each group"
        )
    if route.same_clients_last:
        return (
            "route.order: the same clients are always the last of their sealed routes, and the end of a route shows "
            "its last client most; fedseq and fedcyclic with route.order=random change them"
        )
    return ""
