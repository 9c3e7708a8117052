"""The `+` grammar: names of methods are joined into the parts of one method.

A method has any number of terms, but at most one route, grouping, merge and warm-up. So two names that both bring a
route are refused, and so are two names that bring a term of the same name. What no name brings is ordinary federated
learning: single clients, plain SGD, the mean by samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from fedrelay.errors import SpecError
from fedrelay.experiment.method_catalogue import MethodEntry, Options, find_methods, joined_training
from fedrelay.experiment.part_docs import options_of
from fedrelay.experiment.sections import Training
from fedrelay.experiment.spec import Comparison, Experiment, Sampling, Section
from fedrelay.grouping.grouping import OPTIONS_WITHOUT_COUNT, Grouping
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.tensor_declarations import ClientState
from fedrelay.merge.base import Merge
from fedrelay.merge.server_stage import ServerStage
from fedrelay.routes.base import Routing
from fedrelay.routes.singletons import Singletons
from fedrelay.warmup.base import Warmup


@dataclass(frozen=True)
class ParsedMethod:
    """The types of a method's parts, before options are applied."""

    name: str
    route: type[Routing]
    grouping: type[Grouping] | None
    terms: Mapping[str, type[Term]]
    merge: type[Merge]
    merge_name: str | None
    """The name that brings the merge; None if it is the default."""

    warmup: type[Warmup] | None
    training: Training
    sampling: Sampling
    schedule: str | None
    clip: float | None
    defaults: Mapping[str, Options]

    def train_settings(self) -> dict[str, Any]:
        """What the method says about training: setting → value."""
        given = {"train.schedule": self.schedule, "train.clip": self.clip}
        return {setting: value for setting, value in given.items() if value is not None}

    def options(self, place: str, part: type[Section]) -> dict[str, FieldInfo]:
        """The options of a part that this method accepts."""
        counted = place == "grouping" and self.route.chooses_group_count
        return {name: each for name, each in options_of(part).items() if not counted or name in OPTIONS_WITHOUT_COUNT}

    def parts(self) -> Iterator[tuple[str, type[Section]]]:
        """Every part with the place of its options: `warmup`, `route`, `grouping`, `terms.prox`, `merge`, `server`."""
        if self.warmup is not None:
            yield "warmup", self.warmup
        yield "route", self.route
        if self.grouping is not None:
            yield "grouping", self.grouping
        for name, term in self.terms.items():
            yield f"terms.{name}", term
        yield "merge", self.merge
        yield "server", ServerStage


def parse_method(method: str) -> ParsedMethod:
    """Join the parts of all names of a method, such as `fedseq+fedprox`.

    Raises:
        SpecError: A name is unknown or repeated, or two names bring the same part.
    """
    entries = find_methods(method)
    route_name, _ = _only(method, entries, "route")
    _, grouping = _only(method, entries, "grouping")
    merge_name, merge = _only(method, entries, "merge")
    _, warmup = _only(method, entries, "warmup")
    _, schedule = _only(method, entries, "schedule")
    _, clip = _only(method, entries, "clip")
    route_entry = next(
        (entry for name, entry in entries.items() if name == route_name or (not route_name and entry.default_route)),
        MethodEntry("", route=Singletons),
    )
    route = route_entry.route or route_entry.default_route or Singletons
    if route_name and grouping and not route.needs_groups:
        raise SpecError(f"method {method!r}: {route_name!r} does not use groups")
    if route.needs_groups and grouping is None:
        raise SpecError(f"method {method!r}: {route_name!r} needs groups; register it with grouping=fedrelay.Grouping")
    training = joined_training(entries.values())
    if training == "pooled" and warmup:
        raise SpecError(f"method {method!r}: all data are pooled, so there is nothing to warm up")
    defaults: dict[str, Options] = {}
    # The name that brings a term decides about its options.
    for entry in sorted(entries.values(), key=lambda entry: bool(entry.terms)):
        defaults |= entry.defaults
    if stages := _joined_server_options(method, entries):
        defaults["server"] = stages
    if merge_name is not None:  # merge options of a route belong to its default merge
        defaults.pop("merge", None)
    return ParsedMethod(
        name=method,
        route=route,
        grouping=grouping,
        terms=_joined_terms(method, entries),
        merge=merge or route_entry.default_merge,
        merge_name=merge_name,
        warmup=warmup,
        training=training,
        sampling="passes" if any(entry.sampling == "passes" for entry in entries.values()) else "random",
        schedule=schedule,
        clip=clip,
        defaults=defaults,
    )


def refuse_misplaced_options(methods: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Name the right place of an option that was given as a setting of the experiment."""
    for name in settings:
        if name in Experiment.model_fields or name in Comparison.model_fields:
            continue
        for method in methods:
            parts = parse_method(method).parts()
            places = [f"{place}.{name}" for place, part in parts if name in options_of(part)]
            if places:
                raise SpecError(f"{name}: is an option of a part of {method!r}; use {' or '.join(places)}")


def _only(method: str, entries: Mapping[str, MethodEntry], part: str) -> tuple[str | None, Any]:
    """The one name that brings a part, and the part."""
    bringing = [name for name, entry in entries.items() if getattr(entry, part) is not None]
    if len(bringing) > 1:
        raise SpecError(f"method {method!r}: {bringing[0]!r} and {bringing[1]!r} both bring a {part}; keep one")
    return (bringing[0], getattr(entries[bringing[0]], part)) if bringing else (None, None)


def _joined_server_options(method: str, entries: Mapping[str, MethodEntry]) -> dict[str, Any]:
    """What all names ask of the server after a merge; no option may be set by two of them."""
    owners: dict[str, str] = {}
    options: dict[str, Any] = {}
    for name, entry in entries.items():
        for option, value in entry.server.items():
            if owners.setdefault(option, name) != name:
                both = f"{owners[option]!r} and {name!r}"
                raise SpecError(f"method {method!r}: {both} both set server.{option}; keep one")
            options[option] = value
    return options


def _joined_terms(method: str, entries: Mapping[str, MethodEntry]) -> dict[str, type[Term]]:
    """The terms of all names; no term and no tensor may belong to two of them."""
    terms: dict[str, type[Term]] = {}
    owners: dict[str, str] = {}
    tensors: dict[tuple[bool, str], str] = {}
    for name, entry in entries.items():
        for term, kind in entry.terms.items():
            if owners.setdefault(term, name) != name:
                both = f"{owners[term]!r} and {name!r}"
                raise SpecError(f"method {method!r}: {both} both bring the term {term!r}; keep one")
            terms[term] = kind
            for tensor in kind.tensors:
                other = tensors.setdefault((isinstance(tensor, ClientState), tensor.name), term)
                if other != term:
                    raise SpecError(
                        f"method {method!r}: the terms {other!r} and {term!r} both have a tensor {tensor.name!r}; "
                        "each needs a name of its own"
                    )
    return terms
