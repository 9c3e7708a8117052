"""The catalogue: which parts a method's name brings, and the `+` grammar that joins names.

A name brings a route, a grouping, local terms or a merge. Two names that bring the same part are refused.
What nobody brings is ordinary federated learning: single clients, plain SGD, the mean by samples.

Adding a method is one file for its part and one line in `CATALOGUE`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic.fields import FieldInfo

from fedrelay.errors import SpecError
from fedrelay.grouping.base import Grouping
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.prox import Prox
from fedrelay.merge.base import Merge
from fedrelay.merge.last import Last
from fedrelay.merge.mean import Mean
from fedrelay.routes.base import Routing
from fedrelay.routes.chains import Chains
from fedrelay.routes.pooled import Pooled
from fedrelay.routes.ring import Ring
from fedrelay.routes.singletons import Singletons
from fedrelay.spec import PARTS, Comparison, Entrant, Experiment, Section, unknown, validate

PUBLIC = 10
"""Public samples of every class, where a method looks at them and nothing else is said."""


@dataclass(frozen=True)
class Entry:
    """What one name brings, and the merge its route goes with when no other name brings one."""

    summary: str
    route: type[Routing] | None = None
    grouping: type[Grouping] | None = None
    terms: Mapping[str, type[Term]] = field(default_factory=dict)
    merge: type[Merge] | None = None
    usual_merge: type[Merge] = Mean
    pools_data: bool = False


CATALOGUE: dict[str, Entry] = {
    "fedavg": Entry("clients train side by side, the server averages", route=Singletons),
    "fedcyclic": Entry("one model travels around a ring of clients", route=Ring, usual_merge=Last),
    "fedseq": Entry("models travel through groups, groups are averaged", route=Chains, grouping=Grouping),
    "fedprox": Entry("clients stay close to the model they received", terms={"prox": Prox}),
    "centralized": Entry("all data in one place: the upper bound", route=Pooled, usual_merge=Last, pools_data=True),
}


@dataclass(frozen=True)
class Blueprint:
    """The part types of a method, before options are applied."""

    name: str
    route: type[Routing]
    grouping: type[Grouping] | None
    terms: Mapping[str, type[Term]]
    merge: type[Merge]
    pools_data: bool

    def parts(self) -> Iterator[tuple[str, type[Section]]]:
        """Every part under the name its options have: `route`, `grouping`, `terms.prox`, `merge`."""
        yield "route", self.route
        if self.grouping is not None:
            yield "grouping", self.grouping
        for name, term in self.terms.items():
            yield f"terms.{name}", term
        yield "merge", self.merge


@dataclass(frozen=True)
class Recipe:
    """A method ready to run: its parts with their options."""

    name: str
    route: Routing
    grouping: Grouping | None
    terms: tuple[Term, ...]
    merge: Merge
    pools_data: bool


def blueprint(method: str) -> Blueprint:
    """Put the parts of a method's names together."""
    names = [name.strip() for name in method.split("+")]
    for name in names:
        if name not in CATALOGUE:
            raise SpecError(f"method: {unknown('name', name, CATALOGUE)}")
    route_name, route = _only(method, names, "route")
    _, grouping = _only(method, names, "grouping")
    _, merge = _only(method, names, "merge")
    terms: dict[str, type[Term]] = {}
    for name in names:
        for term, kind in CATALOGUE[name].terms.items():
            if term in terms:
                raise SpecError(f"method {method!r}: the term {term!r} is there twice")
            terms[term] = kind
    if route_name and grouping and not CATALOGUE[route_name].route.needs_groups:  # type: ignore[union-attr]
        raise SpecError(f"method {method!r}: {route_name!r} does not use groups")
    usual = CATALOGUE[route_name].usual_merge if route_name else Mean
    pools = any(CATALOGUE[name].pools_data for name in names)
    return Blueprint(method, route or Singletons, grouping, terms, merge or usual, pools)


def recipe(experiment: Experiment) -> Recipe:
    """The method of an experiment with its options, each checked against the part that takes it."""
    plan = blueprint(experiment.method)
    options = {part: dict(getattr(experiment, part)) for part in PARTS}
    parts = dict(plan.parts())
    for name in options["terms"]:
        if f"terms.{name}" not in parts:
            raise SpecError(f"terms.{name}: {unknown('term', name, plan.terms)} in method {plan.name!r}")
    if options["grouping"] and plan.grouping is None:
        raise SpecError(f"grouping: method {plan.name!r} forms no groups and takes no grouping options")
    return Recipe(
        plan.name,
        validate(plan.route, options["route"], "route."),
        validate(plan.grouping, options["grouping"], "grouping.") if plan.grouping else None,
        tuple(validate(term, _term_options(options, name), f"terms.{name}.") for name, term in plan.terms.items()),
        validate(plan.merge, options["merge"], "merge."),
        plan.pools_data,
    )


def experiments(comparison: Comparison) -> list[tuple[Entrant, Experiment]]:
    """Every run of a comparison: methods in order, seeds within. Common options go to the methods that take them."""
    common = comparison.model_dump(exclude={"methods", "seeds", "out"})
    blueprints = {entrant.name: blueprint(entrant.method) for entrant in comparison.methods}
    for part in PARTS:
        if common[part] and not any(_fitting(plan, part, common[part]) for plan in blueprints.values()):
            raise SpecError(f"{part}: no method of this comparison takes these options")
    runs = []
    for entrant in comparison.methods:
        plan = blueprints[entrant.name]
        own = {part: _fitting(plan, part, common[part]) | dict(getattr(entrant, part)) for part in PARTS}
        settings = {**common, **own, "train": {**common["train"], **entrant.train}, "method": entrant.method}
        if entrant.fraction is not None:
            settings["fraction"] = entrant.fraction
        runs += [(entrant, validate(Experiment, {**settings, "seed": seed})) for seed in comparison.seeds]
    resolved = with_public_set([experiment for _, experiment in runs])
    return [(entrant, experiment) for (entrant, _), experiment in zip(runs, resolved, strict=True)]


def with_public_set(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Experiments that are compared, with the size of the public set said: the same for all that leave it open.

    A method that looks at public samples takes them out of the test set of all others.
    """
    groupings = [recipe(experiment).grouping for experiment in experiments]
    usual = PUBLIC if any(grouping is not None and grouping.needs_public for grouping in groupings) else 0
    return [
        experiment.model_copy(update={"data": experiment.data.model_copy(update={"public": usual})})
        if experiment.data.public is None
        else experiment
        for experiment in experiments
    ]


def described(part: type[Section]) -> str:
    """The opening of the file a part lives in: what it is, its paper, its rule, its deviations."""
    return inspect.getdoc(sys.modules[part.__module__]) or ""


def options_of(part: type[Section]) -> dict[str, FieldInfo]:
    """The options of a part, its own before those it has in common with others."""
    fields = part.model_fields
    return dict(sorted(fields.items(), key=lambda each: each[0] not in part.__annotations__))


def _only(method: str, names: list[str], part: str) -> tuple[str | None, Any]:
    """The one name that brings a part, and the part."""
    bringing = [name for name in names if getattr(CATALOGUE[name], part) is not None]
    if len(bringing) > 1:
        raise SpecError(f"method {method!r}: {bringing[0]!r} and {bringing[1]!r} both bring a {part}; keep one")
    return (bringing[0], getattr(CATALOGUE[bringing[0]], part)) if bringing else (None, None)


def _term_options(options: Mapping[str, Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    given = options["terms"].get(name, {})
    if not isinstance(given, Mapping):
        raise SpecError(f"terms.{name}: must be a mapping of options, got {given!r}")
    return given


def _fitting(plan: Blueprint, part: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the common options that a method can take."""
    parts = dict(plan.parts())
    if part == "terms":
        return {name: given for name, given in options.items() if f"terms.{name}" in parts}
    return {name: given for name, given in options.items() if part in parts and name in parts[part].model_fields}
