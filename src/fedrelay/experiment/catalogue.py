"""The catalogue: which parts a method's name brings, and the `+` grammar that joins names.

A name brings a route, a grouping, local terms, a merge or a warm-up. Terms add up; two names that bring the same other
part, or the same term, are refused.
What nobody brings is ordinary federated learning: single clients, plain SGD, the mean by samples.

Adding a method is one file for its part and one line in `CATALOGUE`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from fedrelay.cost.clock import Clock
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import PARTS, Comparison, ComparisonEntry, Experiment, Section, unknown, validate
from fedrelay.grouping.base import COUNTED, Grouping
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.contrast import Contrast
from fedrelay.local.terms.control import Control
from fedrelay.local.terms.dp import Dp
from fedrelay.local.terms.drift import Drift
from fedrelay.local.terms.fisher import FisherPenalty
from fedrelay.local.terms.fusion import Fusion
from fedrelay.local.terms.glam import Glam
from fedrelay.local.terms.mmd import Mmd
from fedrelay.local.terms.prox import Prox
from fedrelay.local.terms.tensors import ClientState
from fedrelay.merge.base import Merge
from fedrelay.merge.disco import Disco
from fedrelay.merge.drift import DriftMean
from fedrelay.merge.geometric import GeometricMedian
from fedrelay.merge.ida import Ida
from fedrelay.merge.krum import Krum
from fedrelay.merge.last import Last
from fedrelay.merge.mean import Mean
from fedrelay.merge.median import Median
from fedrelay.merge.momentum import Momentum
from fedrelay.merge.nova import Nova
from fedrelay.merge.server_optimizers import Adagrad, Adam, Yogi
from fedrelay.merge.trimmed import Trimmed
from fedrelay.privacy.checks import check_fresh_noise, check_private
from fedrelay.robustness.label_flip import swapped_classes
from fedrelay.routes.asynchronous import Asynchronous
from fedrelay.routes.base import Routing
from fedrelay.routes.chains import Chains
from fedrelay.routes.growing import Growing
from fedrelay.routes.pooled import Pooled
from fedrelay.routes.ring import Ring
from fedrelay.routes.rotations import Rotations
from fedrelay.routes.singletons import Singletons
from fedrelay.routes.slots import Slots
from fedrelay.routes.star import Star
from fedrelay.warmup.base import Phase, Warmup
from fedrelay.warmup.fedavg import FedAvgFirst
from fedrelay.warmup.shared import SharedRaw
from fedrelay.warmup.wfsl import Wfsl

Options = Mapping[str, Any]

PUBLIC = 10
"""Public samples of every class, where a method looks at them and nothing else is said."""


@dataclass(frozen=True)
class CatalogueEntry:
    """What one name brings, and the merge its route goes with when no other name brings one."""

    summary: str
    route: type[Routing] | None = None
    usual_route: type[Routing] | None = None
    """The route of a name that needs none, where no other name brings one."""

    grouping: type[Grouping] | None = None
    terms: Mapping[str, type[Term]] = field(default_factory=dict)
    merge: type[Merge] | None = None
    usual_merge: type[Merge] = Mean
    warmup: type[Warmup] | None = None
    pools_data: bool = False
    defaults: Mapping[str, Options] = field(default_factory=dict)
    """Part → options other than the part's own defaults; also of terms that only other names bring."""


_ICG = {"assign": "icg"}
_UNIFORM = {"merge": {"weights": "uniform"}}
_FEDGSP_TRIPS = {"order": "fixed", "relay": "server"}
_SLOW_MERGES = {"terms.prox": {"mu": 1.0}, "terms.drift": {"alpha": 1.0}}
"""Where models travel long before they meet again, they are held closer together."""

CATALOGUE: dict[str, CatalogueEntry] = {
    "fedavg": CatalogueEntry("clients train side by side, the server averages", route=Singletons),
    "fedcyclic": CatalogueEntry("one model travels around a ring of clients", route=Ring, usual_merge=Last),
    "fedstar": CatalogueEntry("every client mixes its model with everybody's", route=Star, defaults=_UNIFORM),
    "fedseq": CatalogueEntry("models travel through groups, groups are averaged", route=Chains, grouping=Grouping),
    "fedseqinter": CatalogueEntry(
        "models go from group to group, averaged now and then",
        route=Slots,
        grouping=Grouping,
        defaults=_SLOW_MERGES,
    ),
    "fedasyncseq": CatalogueEntry(
        "the same without waiting for slow groups", route=Asynchronous, grouping=Grouping, defaults=_SLOW_MERGES
    ),
    "fedseq2par": CatalogueEntry(
        "from few long groups to many short ones", route=Growing, grouping=Grouping, defaults={"grouping": _ICG}
    ),
    "fedgsp": CatalogueEntry(
        "the same, with new balanced groups every round",
        route=Growing,
        grouping=Grouping,
        defaults={
            "route": {"growth": "log", "alpha": 2.0, "beta": 10, "regroup": "always", "relay": "server"},
            "grouping": {**_ICG, "profile": "counts", "leftovers": "drop"},
            **_UNIFORM,
        },
    ),
    "naivegsp": CatalogueEntry(
        "fixed random groups, always in the same order",
        route=Chains,
        grouping=Grouping,
        defaults={"route": _FEDGSP_TRIPS, **_UNIFORM},
    ),
    "naivegsp-icg": CatalogueEntry(
        "fixed balanced groups, always in the same order",
        route=Chains,
        grouping=Grouping,
        defaults={"route": _FEDGSP_TRIPS, "grouping": {**_ICG, "profile": "counts"}, **_UNIFORM},
    ),
    "astraea": CatalogueEntry(
        "groups that come closest to uniform classes",
        route=Chains,
        grouping=Grouping,
        defaults={"grouping": {"assign": "greedy", "distance": "kl"}},
    ),
    "spfl": CatalogueEntry(
        "every model visits all who take part, each from another start", route=Rotations, defaults=_UNIFORM
    ),
    "wfsl": CatalogueEntry("one model is warmed up through chosen clients first", warmup=Wfsl),
    "shared-raw": CatalogueEntry("clients share a few samples, the server begins with those", warmup=SharedRaw),
    "fedavg-first": CatalogueEntry("rounds of FedAvg before another method", warmup=FedAvgFirst),
    "ewc": CatalogueEntry(
        "clients keep what mattered to the last; on a ring",
        usual_route=Ring,
        terms={"fisher": FisherPenalty},
        usual_merge=Last,
    ),
    "glam": CatalogueEntry("clients also learn from the last and the global model", terms={"glam": Glam}),
    "fedprox": CatalogueEntry("clients stay close to the model they received", terms={"prox": Prox}),
    "scaffold": CatalogueEntry("control variates correct the drift of clients", terms={"control": Control}),
    "feddyn": CatalogueEntry(
        "a dynamic penalty brings clients' optima together", terms={"drift": Drift}, merge=DriftMean
    ),
    "feddc": CatalogueEntry(
        "drift is decoupled and corrected",
        terms={"drift": Drift, "control": Control},
        merge=DriftMean,
        defaults={"terms.drift": {"alpha": 0.01}},
    ),
    "moon": CatalogueEntry(
        "features stay close to the anchor's, away from the client's last", terms={"contrast": Contrast}
    ),
    "fedmmd": CatalogueEntry("outputs stay close to the anchor's in distribution", terms={"mmd": Mmd}),
    "fedfusion": CatalogueEntry("features are fused with the anchor's", terms={"fusion": Fusion}),
    "fednova": CatalogueEntry("updates are normalised by the steps taken", merge=Nova),
    "feddisco": CatalogueEntry("clients with unlike classes count less", merge=Disco),
    "fedadagrad": CatalogueEntry("the server steps by Adagrad", merge=Adagrad),
    "fedadam": CatalogueEntry("the server steps by Adam", merge=Adam),
    "fedyogi": CatalogueEntry("the server steps by Yogi", merge=Yogi),
    "fedavgm": CatalogueEntry("the server steps with momentum", merge=Momentum),
    "ida": CatalogueEntry("models far from the mean count less", merge=Ida),
    "median": CatalogueEntry("the coordinate-wise median, robust to bad clients", merge=Median),
    "trimmed-mean": CatalogueEntry("the mean without the extremes of every coordinate", merge=Trimmed),
    "krum": CatalogueEntry("the model closest to its neighbours", merge=Krum),
    "geometric-median": CatalogueEntry("the point closest to all models", merge=GeometricMedian),
    "dp": CatalogueEntry("clients clip their changes and add noise: differential privacy", terms={"dp": Dp}),
    "centralized": CatalogueEntry(
        "all data in one place: the upper bound", route=Pooled, usual_merge=Last, pools_data=True
    ),
}


@dataclass(frozen=True)
class MethodParts:
    """The part types of a method, before options are applied."""

    name: str
    route: type[Routing]
    grouping: type[Grouping] | None
    terms: Mapping[str, type[Term]]
    merge: type[Merge]
    merge_name: str | None
    """Who brings the merge; None where it is the usual one."""

    warmup: type[Warmup] | None
    pools_data: bool
    defaults: Mapping[str, Options]

    def options(self, where: str, part: type[Section]) -> dict[str, FieldInfo]:
        """Those options of a part that the method takes."""
        found = options_of(part)
        counted = where == "grouping" and self.route.counts_groups
        return {name: each for name, each in found.items() if not counted or name in COUNTED}

    def parts(self) -> Iterator[tuple[str, type[Section]]]:
        """Every part under the name its options have: `warmup`, `route`, `grouping`, `terms.prox`, `merge`."""
        if self.warmup is not None:
            yield "warmup", self.warmup
        yield "route", self.route
        if self.grouping is not None:
            yield "grouping", self.grouping
        for name, term in self.terms.items():
            yield f"terms.{name}", term
        yield "merge", self.merge


@dataclass(frozen=True)
class Method:
    """A method ready to run: its parts with their options."""

    name: str
    route: Routing
    grouping: Grouping | None
    terms: tuple[Term, ...]
    merge: Merge
    pools_data: bool
    warmup: Warmup | None
    clock: Clock

    @property
    def profiles_clients(self) -> bool:
        """Whether clients have to compute something before the first round."""
        selector = self.warmup.selector if self.warmup is not None else None
        groups = self.grouping is not None and self.grouping.trains
        return groups or (selector is not None and selector.needs_vectors)

    @property
    def needs_histograms(self) -> bool:
        """Whether clients have to tell the server their class counts, whichever parts ask for them."""
        grouping = self.grouping is not None and self.grouping.needs_histograms
        return not self.pools_data and (grouping or self.merge.needs_histograms)

    @property
    def privacy(self) -> Dp | None:
        """The term that guards clients' samples, if one does."""
        return next((term for term in self.terms if isinstance(term, Dp)), None)

    @property
    def tells_of_samples(self) -> bool:
        """Whether clients describe their samples, or models trained on them, beside the models they hand on."""
        return self.profiles_clients or self.needs_histograms

    def phases(self, rounds: int) -> tuple[Phase, ...]:
        """All rounds of a run: those of the warm-up, if there is one, and the method's own."""
        common = tuple(term for term in self.terms if term.in_warmup)
        before = [
            replace(phase, terms=(*phase.terms, *common))
            for phase in (self.warmup.phases() if self.warmup is not None else ())
        ]
        rest = rounds - sum(phase.rounds for phase in before)
        if rest < 0:
            assert self.warmup is not None
            raise SpecError(
                f"rounds: the warm-up alone takes {rounds - rest} (warmup.{self.warmup.length}), got {rounds}; "
                f"lower warmup.{self.warmup.length} or raise rounds"
            )
        own = (Phase(rest, self.route, self.terms, self.merge),) if rest else ()
        return (*before, *own)


def blueprint(method: str) -> MethodParts:
    """Put the parts of a method's names together."""
    names = [name.strip() for name in method.split("+")]
    for name in names:
        if not name:
            raise SpecError(f"method {method!r}: a name is missing; names are joined as in fedseq+fedprox")
        if name not in CATALOGUE:
            raise SpecError(f"method: {unknown('name', name, CATALOGUE)}")
        if names.count(name) > 1:
            raise SpecError(f"method {method!r}: {name!r} stands there twice")
    route_name, _ = _only(method, names, "route")
    _, grouping = _only(method, names, "grouping")
    merge_name, merge = _only(method, names, "merge")
    _, warmup = _only(method, names, "warmup")
    terms: dict[str, type[Term]] = {}
    owners: dict[str, str] = {}
    for name in names:
        for term, kind in CATALOGUE[name].terms.items():
            if owners.setdefault(term, name) != name:
                both = f"{owners[term]!r} and {name!r}"
                raise SpecError(f"method {method!r}: {both} both bring the term {term!r}; keep one")
            terms[term] = kind
    _refuse_shared_tensors(method, terms)
    if route_name and grouping and not CATALOGUE[route_name].route.needs_groups:  # type: ignore[union-attr]
        raise SpecError(f"method {method!r}: {route_name!r} does not use groups")
    travelling = route_name or next((name for name in names if CATALOGUE[name].usual_route), None)
    entry = CATALOGUE[travelling] if travelling else CatalogueEntry("", route=Singletons)
    pools = any(CATALOGUE[name].pools_data for name in names)
    if pools and warmup:
        raise SpecError(f"method {method!r}: where all data are in one place there is nothing to warm up")
    defaults: dict[str, Options] = {}
    for name in sorted(
        names, key=lambda name: bool(CATALOGUE[name].terms)
    ):  # who brings a term has the last word on it
        defaults |= CATALOGUE[name].defaults
    if merge_name is not None:  # what a route says of the merge is about its usual one
        defaults.pop("merge", None)
    return MethodParts(
        name=method,
        route=entry.route or entry.usual_route or Singletons,
        grouping=grouping,
        terms=terms,
        merge=merge or entry.usual_merge,
        merge_name=merge_name,
        warmup=warmup,
        pools_data=pools,
        defaults=defaults,
    )


def recipe(experiment: Experiment) -> Method:
    """The method of an experiment with its options, each checked against the part that takes it."""
    plan = blueprint(experiment.method)
    parts = dict(plan.parts())
    for name in experiment.terms:
        if f"terms.{name}" not in parts:
            raise SpecError(f"terms.{name}: {unknown('term', name, plan.terms)} in method {plan.name!r}")
    for part, what in (("grouping", "forms no groups"), ("warmup", "has no warm-up")):
        if getattr(experiment, part) and part not in parts:
            raise SpecError(f"{part}: method {plan.name!r} {what} and takes no {part} options")
    made: dict[str, Any] = {
        part: validate(kind, _options(plan, experiment, part), f"{part}.") for part, kind in parts.items()
    }
    terms = tuple(made[f"terms.{name}"] for name in plan.terms)
    clock = validate(Clock, experiment.clock, "clock.")
    found = Method(
        plan.name, made["route"], made.get("grouping"), terms, made["merge"], plan.pools_data, made.get("warmup"), clock
    )
    if found.route.counts_groups and found.grouping is not None:
        found.grouping.check_counted(plan.name)
    if not found.route.merges:
        _refuse_what_needs_a_merge(plan, found)
    if found.privacy is not None:
        check_private(plan.name, plan.terms, found.route, found.warmup, found.pools_data)
        check_fresh_noise(experiment)
    found.phases(experiment.rounds)
    return found


def _refuse_shared_tensors(method: str, terms: Mapping[str, type[Term]]) -> None:
    """Terms that use a name at the same place would write over each other."""
    owners: dict[tuple[bool, str], str] = {}
    for name, term in terms.items():
        for tensor in term.tensors:
            other = owners.setdefault((isinstance(tensor, ClientState), tensor.name), name)
            if other != name:
                raise SpecError(
                    f"method {method!r}: the terms {other!r} and {name!r} both have a tensor {tensor.name!r}; "
                    "each needs a name of its own"
                )


def _refuse_what_needs_a_merge(plan: MethodParts, found: Method) -> None:
    if plan.merge_name is not None:
        raise SpecError(f"method {plan.name!r}: models are never merged, so {plan.merge_name!r} has no effect")
    for name, term in plan.terms.items():
        if term.settle is not Term.settle:
            raise SpecError(f"method {plan.name!r}: models are never merged, which the term {name!r} needs")


def _options(plan: MethodParts, experiment: Experiment, part: str) -> Mapping[str, Any]:
    """What was said of a part, over what the method's names say."""
    section, _, name = part.partition(".")
    given = dict(getattr(experiment, section))
    if name:
        given = given.get(name, {})
        if not isinstance(given, Mapping):
            raise SpecError(f"{part}: must be a mapping of options, got {given!r}")
    usual = plan.defaults.get(part, {})
    if given.get("assign", usual.get("assign")) != usual.get("assign"):
        usual = {}  # what goes with one way of grouping says nothing of another
    return {**usual, **given}


def refuse_stray_options(methods: Sequence[str], settings: Mapping[str, Any]) -> None:
    """An option of a part that stands where settings of the experiment stand gets the name it should have."""
    for name in settings:
        if name in Experiment.model_fields or name in Comparison.model_fields:
            continue
        for method in methods:
            parts = blueprint(method).parts()
            places = [f"{where}.{name}" for where, part in parts if name in options_of(part)]
            if places:
                raise SpecError(f"{name}: is an option of a part of {method!r}; say {' or '.join(places)}")


def experiments(comparison: Comparison) -> list[tuple[ComparisonEntry, Experiment]]:
    """Every run of a comparison: methods in order, seeds within. Common options go to the methods that take them."""
    common = comparison.model_dump(exclude={"methods", "seeds", "out"})
    blueprints = {entrant.name: blueprint(entrant.method) for entrant in comparison.methods}
    for part in PARTS:
        if common[part] and not any(_fitting(plan, part, common[part]) for plan in blueprints.values()):
            raise SpecError(f"{part}: no method of this comparison takes these options")
    runs = []
    for entrant in comparison.methods:
        plan = blueprints[entrant.name]
        own = {part: _over(_fitting(plan, part, common[part]), getattr(entrant, part)) for part in PARTS}
        own |= {section: {**common[section], **getattr(entrant, section)} for section in ("train", "guard", "recovery")}
        own |= {name: getattr(entrant, name) for name in ("fraction", "faults") if getattr(entrant, name) is not None}
        settings = {**common, **own, "method": entrant.method}
        if entrant.attack:  # one that is named is another one altogether
            settings["attack"] = {**({} if "name" in entrant.attack else common["attack"]), **entrant.attack}
        runs += [(entrant, validate(Experiment, {**settings, "seed": seed})) for seed in comparison.seeds]
    resolved = with_classes_watched(with_public_set([experiment for _, experiment in runs]))
    return [(entrant, experiment) for (entrant, _), experiment in zip(runs, resolved, strict=True)]


def with_public_set(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Experiments that are compared, with the size of the public set said: the same for all that leave it open.

    A method that looks at public samples takes them out of the test set of all others.
    """
    groupings = [recipe(experiment).grouping for experiment in experiments]
    looked_at = any(grouping is not None and grouping.needs_public for grouping in groupings)
    guarded = any(experiment.guard.tolerance is not None for experiment in experiments)
    usual = PUBLIC if looked_at or guarded else 0
    return [
        experiment.model_copy(update={"data": experiment.data.model_copy(update={"public": usual})})
        if experiment.data.public is None
        else experiment
        for experiment in experiments
    ]


def with_classes_watched(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Experiments that are compared, with the classes said whose accuracy is noted: those that any attack swaps."""
    swapped = tuple(sorted({each for experiment in experiments for each in swapped_classes(experiment.attack)}))
    return [
        experiment.model_copy(update={"eval": experiment.eval.model_copy(update={"classes": swapped})})
        if swapped and not experiment.eval.classes
        else experiment
        for experiment in experiments
    ]


def described(part: type[Section]) -> str:
    """The opening of the file a part lives in: what it is, its paper, its rule, its deviations."""
    return inspect.getdoc(sys.modules[part.__module__]) or ""


def options_of(part: type[Section]) -> dict[str, FieldInfo]:
    """The options of a part, its own before those it has in common with others; those of a section by dotted names."""
    found: dict[str, FieldInfo] = {}
    for name, each in sorted(part.model_fields.items(), key=lambda pair: pair[0] not in part.__annotations__):
        if isinstance(each.default, Section):
            inner = type(each.default).model_fields
            found |= {f"{name}.{below}": option for below, option in inner.items()}
        else:
            found[name] = each
    return found


def meaning(option: FieldInfo) -> str:
    """What an option is for and, unless that says it, which names it takes."""
    text, names = option.description or "", list(_names(option.annotation))
    missing = [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)]
    return f"{text}; one of {', '.join(names)}" if missing else text


def _names(annotation: Any) -> Iterator[str]:
    """All names among the values of a type."""
    if get_origin(annotation) is Literal:
        yield from (value for value in get_args(annotation) if isinstance(value, str))
    else:
        for part in get_args(annotation):
            yield from _names(part)


def _only(method: str, names: list[str], part: str) -> tuple[str | None, Any]:
    """The one name that brings a part, and the part."""
    bringing = [name for name in names if getattr(CATALOGUE[name], part) is not None]
    if len(bringing) > 1:
        raise SpecError(f"method {method!r}: {bringing[0]!r} and {bringing[1]!r} both bring a {part}; keep one")
    return (bringing[0], getattr(CATALOGUE[bringing[0]], part)) if bringing else (None, None)


def _over(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A method's own options over the common ones; those of one term, or of another mapping, one by one."""
    both = {
        name: {**common[name], **given}
        for name, given in own.items()
        if isinstance(given, Mapping) and isinstance(common.get(name), Mapping)
    }
    return {**common, **own, **both}


def _fitting(plan: MethodParts, part: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the common options that a method can take."""
    parts = dict(plan.parts())
    if part == "terms":
        return {name: given for name, given in options.items() if f"terms.{name}" in parts}
    return {name: given for name, given in options.items() if part in parts and name in parts[part].model_fields}
