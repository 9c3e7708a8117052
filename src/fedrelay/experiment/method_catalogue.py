"""The catalogue: which parts a method's name stands for.

A name stands for a route, a grouping, local terms, a merge or a warm-up; `grammar` joins names with `+`. To add a
built-in method, write one file for its part and add one line to `METHODS`. A package of your own calls `register`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from inspect import iscoroutinefunction, isfunction, signature
from typing import Any

from fedrelay.errors import SpecError
from fedrelay.experiment.error_messages import nearest, unknown
from fedrelay.experiment.part_serialization import REGISTERED, part_name
from fedrelay.experiment.sections import Section
from fedrelay.experiment.spec import validate
from fedrelay.grouping.grouping import Grouping
from fedrelay.local.client_profiler import ClientProfiler
from fedrelay.local.terms.base import LossTerm, Term
from fedrelay.local.terms.client_level_privacy import ClientLevelPrivacy
from fedrelay.local.terms.contrastive_loss import ContrastiveLoss
from fedrelay.local.terms.control_variates import ControlVariates
from fedrelay.local.terms.drift_penalty import DriftPenalty
from fedrelay.local.terms.feature_fusion import FeatureFusion
from fedrelay.local.terms.fisher_penalty import FisherPenalty
from fedrelay.local.terms.glam import Glam
from fedrelay.local.terms.mmd_penalty import MmdPenalty
from fedrelay.local.terms.proximal_penalty import ProximalPenalty
from fedrelay.local.terms.tensor_declarations import ClientState, Payload, ServerState
from fedrelay.merge.adaptive import ServerAdagrad, ServerAdam, ServerYogi
from fedrelay.merge.base import Merge
from fedrelay.merge.disco import Disco
from fedrelay.merge.drift import MeanPlusDrift
from fedrelay.merge.geometric_median import GeometricMedian
from fedrelay.merge.ida import Ida
from fedrelay.merge.krum import Krum
from fedrelay.merge.last_route import LastRoute
from fedrelay.merge.mean import Mean
from fedrelay.merge.median import Median
from fedrelay.merge.nova import Nova
from fedrelay.merge.server_momentum import ServerMomentum
from fedrelay.merge.trimmed_mean import TrimmedMean
from fedrelay.routes.all_to_all import AllToAll
from fedrelay.routes.asynchronous import Asynchronous
from fedrelay.routes.base import Routing
from fedrelay.routes.centralized import Centralized
from fedrelay.routes.chains import Chains
from fedrelay.routes.group_to_group import GroupToGroup
from fedrelay.routes.growing_group_count import GrowingGroupCount
from fedrelay.routes.ring import Ring
from fedrelay.routes.rotations import Rotations
from fedrelay.routes.singletons import Singletons
from fedrelay.user_code import import_module_of_user, is_built_in, is_module_name
from fedrelay.warmup.base import Warmup
from fedrelay.warmup.fedavg_first import FedAvgFirst
from fedrelay.warmup.shared_raw import SharedRaw
from fedrelay.warmup.wfsl import Wfsl

Options = Mapping[str, Any]

ENTRY_POINTS = "fedrelay.methods"
"""The entry-point group in which packages list their methods: `pairs = "mylab.pairs"`."""


@dataclass(frozen=True)
class MethodEntry:
    """The parts that one name stands for, and the merge that is used when no other name brings one."""

    summary: str
    route: type[Routing] | None = None
    default_route: type[Routing] | None = None
    """Used when no name brings a route."""

    grouping: type[Grouping] | None = None
    terms: Mapping[str, type[Term]] = field(default_factory=dict)
    merge: type[Merge] | None = None
    default_merge: type[Merge] = Mean
    warmup: type[Warmup] | None = None
    pools_data: bool = False
    defaults: Mapping[str, Options] = field(default_factory=dict)
    """Part → options that differ from the part's own defaults; may include terms that other names bring."""

    def parts(self) -> dict[str, type[Section]]:
        """The parts by their place in a spec: `warmup`, `route`, `grouping`, `terms.prox`, `merge`."""
        found: dict[str, type[Section] | None] = {
            "warmup": self.warmup,
            "route": self.route or self.default_route,
            "grouping": self.grouping,
            **{f"terms.{name}": term for name, term in self.terms.items()},
            "merge": self.merge,
        }
        return {place: part for place, part in found.items() if part is not None}


_ICG = {"assign": "icg"}
_UNIFORM = {"merge": {"weights": "uniform"}}
_FEDGSP_ROUTE = {"order": "fixed", "handover": "server"}
_SLOW_MERGES = {"terms.prox": {"mu": 1.0}, "terms.drift": {"alpha": 1.0}}
"""Models that are merged rarely are held closer together."""

METHODS: dict[str, MethodEntry] = {
    "fedavg": MethodEntry("clients train side by side, the server averages", route=Singletons),
    "fedcyclic": MethodEntry("one model travels around a ring of clients", route=Ring, default_merge=LastRoute),
    "fedstar": MethodEntry("every client mixes its model with those of all others", route=AllToAll, defaults=_UNIFORM),
    "fedseq": MethodEntry(
        "one model travels through each group, then these models are averaged", route=Chains, grouping=Grouping
    ),
    "fedseqinter": MethodEntry(
        "models go from group to group and are averaged every few rounds",
        route=GroupToGroup,
        grouping=Grouping,
        defaults=_SLOW_MERGES,
    ),
    "fedasyncseq": MethodEntry(
        "models go from group to group without waiting for slow groups",
        route=Asynchronous,
        grouping=Grouping,
        defaults=_SLOW_MERGES,
    ),
    "fedseq2par": MethodEntry(
        "few large groups at first, many small groups at the end",
        route=GrowingGroupCount,
        grouping=Grouping,
        defaults={"grouping": _ICG},
    ),
    "fedgsp": MethodEntry(
        "few large groups at first, many small ones later, formed anew every round",
        route=GrowingGroupCount,
        grouping=Grouping,
        defaults={
            "route": {"growth": "log", "pace": "federation", "regroup": "always", "handover": "server"},
            "grouping": {**_ICG, "profile": "counts", "leftovers": "drop"},
            **_UNIFORM,
        },
    ),
    "naivegsp": MethodEntry(
        "fixed random groups, clients always in the same order",
        route=Chains,
        grouping=Grouping,
        defaults={"route": _FEDGSP_ROUTE, **_UNIFORM},
    ),
    "naivegsp-icg": MethodEntry(
        "fixed balanced groups, clients always in the same order",
        route=Chains,
        grouping=Grouping,
        defaults={"route": _FEDGSP_ROUTE, "grouping": {**_ICG, "profile": "counts"}, **_UNIFORM},
    ),
    "astraea": MethodEntry(
        "models travel through groups whose classes are nearly uniform",
        route=Chains,
        grouping=Grouping,
        defaults={"grouping": {"assign": "greedy", "distance": "kl"}},
    ),
    "spfl": MethodEntry(
        "every model visits all sampled clients, each from another start", route=Rotations, defaults=_UNIFORM
    ),
    "wfsl": MethodEntry("first, one model travels through selected clients as a warm-up", warmup=Wfsl),
    "shared-raw": MethodEntry("clients share a few samples, and the server first trains on them", warmup=SharedRaw),
    "fedavg-first": MethodEntry("rounds of FedAvg before another method", warmup=FedAvgFirst),
    "ewc": MethodEntry(
        "a ring whose clients protect the weights that mattered to earlier ones",
        default_route=Ring,
        terms={"fisher": FisherPenalty},
        default_merge=LastRoute,
    ),
    "glam": MethodEntry("clients also learn from the received and the global model", terms={"glam": Glam}),
    "fedprox": MethodEntry("clients stay close to the model they received", terms={"prox": ProximalPenalty}),
    "scaffold": MethodEntry("control variates correct the drift of clients", terms={"control": ControlVariates}),
    "feddyn": MethodEntry(
        "a dynamic penalty brings clients' optima together", terms={"drift": DriftPenalty}, merge=MeanPlusDrift
    ),
    "feddc": MethodEntry(
        "drift is decoupled and corrected",
        terms={"drift": DriftPenalty, "control": ControlVariates},
        merge=MeanPlusDrift,
        defaults={"terms.drift": {"alpha": 0.01}},
    ),
    "moon": MethodEntry(
        "features stay close to the received model's, away from the client's last model's",
        terms={"contrast": ContrastiveLoss},
    ),
    "fedmmd": MethodEntry(
        "outputs stay close in distribution to those of the received model", terms={"mmd": MmdPenalty}
    ),
    "fedfusion": MethodEntry("features are fused with those of the received model", terms={"fusion": FeatureFusion}),
    "fednova": MethodEntry("updates are divided by the number of local steps", merge=Nova),
    "feddisco": MethodEntry("clients whose classes are far from uniform get less weight", merge=Disco),
    "fedadagrad": MethodEntry("the server applies the mean update with Adagrad", merge=ServerAdagrad),
    "fedadam": MethodEntry("the server applies the mean update with Adam", merge=ServerAdam),
    "fedyogi": MethodEntry("the server applies the mean update with Yogi", merge=ServerYogi),
    "fedavgm": MethodEntry("the server applies the mean update with momentum", merge=ServerMomentum),
    "ida": MethodEntry("models far from the mean get less weight", merge=Ida),
    "median": MethodEntry("the coordinate-wise median, robust to bad clients", merge=Median),
    "trimmed-mean": MethodEntry("the mean without the extremes of every coordinate", merge=TrimmedMean),
    "krum": MethodEntry("the model closest to its neighbours", merge=Krum),
    "geometric-median": MethodEntry("the point closest to all models", merge=GeometricMedian),
    "dp": MethodEntry(
        "clients clip their changes and add noise: differential privacy", terms={"dp": ClientLevelPrivacy}
    ),
    "centralized": MethodEntry(
        "all samples in one place: the centralised baseline",
        route=Centralized,
        default_merge=LastRoute,
        pools_data=True,
    ),
}
"""The methods by name: the built-in ones, then those that plug-ins register."""

BUILT_IN = frozenset(METHODS)
LOADED_PLUGINS: dict[str, None] = {}
"""The modules that `load_plugins` has imported, in this order."""

_BASES: dict[str, type[Section]] = {
    "warmup": Warmup,
    "route": Routing,
    "grouping": Grouping,
    "merge": Merge,
    "profiler": ClientProfiler,
}


def register(
    name: str,
    *,
    summary: str,
    route: type[Routing] | None = None,
    grouping: type[Grouping] | None = None,
    terms: Mapping[str, type[Term]] | None = None,
    merge: type[Merge] | None = None,
    default_merge: type[Merge] = Mean,
    warmup: type[Warmup] | None = None,
    profiler: type[ClientProfiler] | None = None,
    defaults: Mapping[str, Options] | None = None,
) -> None:
    """Add a method to the catalogue, so that specs, the command line and reports know it by name.

    Args:
        name: The name of the method. Names of built-in methods are taken.
        summary: One line for `fedrelay methods`.
        route: How models travel; a subclass of `Routing`.
        grouping: How groups are formed; `Grouping` itself, or a subclass.
        terms: What clients do besides plain training, by term name; subclasses of `Term`.
        merge: How the server merges arrivals; a subclass of `Merge`.
        default_merge: The merge that is used when no name of a combination brings one.
        warmup: What comes before the first round; a subclass of `Warmup`.
        profiler: What nodes compute for the grouping, if it has a profile of its own; a subclass of `ClientProfiler`.
        defaults: Options that differ from the parts' own defaults, by place: `{"route": {"loops": 2}}`.

    Raises:
        SpecError: The name is taken or not valid, or a part has the wrong type or cannot work.
    """
    for given, what in ((terms, "terms"), (defaults, "defaults")):
        if given is not None and not isinstance(given, Mapping):
            raise SpecError(f"method {name!r}: {what} must be a mapping by name, got {given!r}")
    for term in terms or ():
        if not _is_plain_name(term):
            raise SpecError(f"method {name!r}: the name of a term must be letters, digits, - and _, got {term!r}")
    for place, options in (defaults or {}).items():
        if not isinstance(options, Mapping) or not (place in _BASES or str(place).startswith("terms.")):
            got = f"{place!r}: {options!r}"
            raise SpecError(f"method {name!r}: defaults must be like {{'route': {{'loops': 2}}}}, got {got}")
    entry = MethodEntry(
        summary, route, None, grouping, dict(terms or {}), merge, default_merge, warmup, defaults=dict(defaults or {})
    )
    if not isinstance(name, str) or not isinstance(summary, str):
        raise SpecError(f"method {name!r}: name and summary must be text")
    if not name or any(each.isspace() or each in "+/:" for each in name):
        raise SpecError(f"method {name!r}: a name has no spaces and none of the characters + / :")
    if (known := METHODS.get(name)) is not None and not _is_redefinition(known, entry):
        owner = next(iter(known.parts().values())).__module__
        raise SpecError(f"method {name!r}: this name is taken by {owner}; choose another")
    if not entry.parts():
        raise SpecError(f"method {name!r}: brings no part; give a route, grouping, terms, merge or warm-up")
    for place, part in entry.parts().items():
        _check_part(name, place, part)
    _check_part(name, "merge", default_merge)
    for place, options in entry.defaults.items():
        _check_defaults(name, place, _part_at(entry, place), options)
    if profiler is not None:
        _check_part(name, "profiler", profiler)
    METHODS[name] = entry
    sent = [*entry.terms.values(), *([profiler] if profiler is not None else [])]
    REGISTERED.update({part_name(part): part for part in sent if not is_built_in(part)})


def _is_redefinition(known: MethodEntry, entry: MethodEntry) -> bool:
    """Whether a method of the user's own is registered again, because a notebook cell ran again for example."""

    def names(each: MethodEntry) -> dict[str, tuple[str, str]]:
        return {place: (part.__module__, part.__qualname__) for place, part in each.parts().items()}

    built_in = all(map(is_built_in, known.parts().values()))
    return not built_in and names(known) == names(entry)


def _check_part(method: str, place: str, part: Any) -> None:
    base = _BASES.get(place, Term)
    if not (isinstance(part, type) and issubclass(part, base)):
        raise SpecError(f"method {method!r}: {place} must be a subclass of {base.__name__}, got {part!r}")
    if not is_built_in(part):
        _check_hooks(method, part, base)


def _check_hooks(method: str, part: type[Section], base: type[Section]) -> None:
    """Refuse a part that misses a hook, misspells one, gives it other arguments, or declares its tensors wrongly."""
    if missing := sorted(getattr(part, "__abstractmethods__", ())):
        raise SpecError(f"method {method!r}: {part.__name__} must define {', '.join(missing)}")
    hooks = [name for name in dir(base) if not name.startswith(("_", "model_"))]
    for name, value in vars(part).items():
        if name.startswith("_") or not isfunction(value):
            continue
        own = getattr(base, name, None)
        if own is None and (close := get_close_matches(name, hooks, 1, 0.85)):
            raise SpecError(f"method {method!r}: {part.__name__}.{name} is no hook; did you mean {close[0]}?")
        if isfunction(own) and iscoroutinefunction(value):
            raise SpecError(f"method {method!r}: {part.__name__}.{name} must not be async; nobody would await it")
        if isfunction(own) and not _same_order(list(signature(own).parameters), list(signature(value).parameters)):
            wanted = ", ".join(signature(own).parameters)
            raise SpecError(f"method {method!r}: {part.__name__}.{name} must take ({wanted})")
    if issubclass(part, Term):
        _check_tensors(f"method {method!r}: {part.__name__}.tensors", part.tensors)
        _check_batchable(method, part)
    if issubclass(part, Grouping) and part.form_groups is not Grouping.form_groups:
        raise SpecError(f"method {method!r}: {part.__name__} must override assign_groups instead of form_groups")
    if issubclass(part, Warmup) and getattr(part, "length", None) not in part.model_fields:
        options = ", ".join(part.model_fields) or "it has none yet"
        raise SpecError(f"method {method!r}: {part.__name__}.length must name its option with the rounds ({options})")


def _check_batchable(method: str, part: type[Term]) -> None:
    """Refuse a hook that would never be called, because the term says that models may be trained together."""
    received = part.adjust_received_model is not Term.adjust_received_model
    hook = "loss" if issubclass(part, LossTerm) else "adjust_received_model" if received else ""
    if part.batchable and hook:
        raise SpecError(
            f"method {method!r}: {part.__name__}.{hook} is only called for models that are trained one by one; "
            "set batchable = False in the class"
        )


def _part_at(entry: MethodEntry, place: str) -> type[Section] | None:
    """The part whose options are at a place: one of the entry, or a term of another method; None if unknown."""
    if place == "merge":
        return entry.merge or entry.default_merge
    others = (each.terms for each in METHODS.values())
    terms = {f"terms.{name}": term for terms in others for name, term in terms.items()}
    return entry.parts().get(place, terms.get(place))


def _check_defaults(method: str, place: str, part: type[Section] | None, options: Options) -> None:
    """Refuse defaults that the part would refuse; some options may be left for the user to set."""
    if part is None:
        return
    left = [name for name, option in part.model_fields.items() if option.is_required() and name not in options]
    if unknown_names := [name for name in options if name not in part.model_fields]:
        raise SpecError(f"method {method!r}: defaults: {place}: {unknown('key', unknown_names[0], part.model_fields)}")
    if not left:
        try:
            validate(part, options, f"{place}.")
        except SpecError as error:
            raise SpecError(f"method {method!r}: defaults: {error}") from None


def _same_order(wanted: Sequence[str], given: Sequence[str]) -> bool:
    """Whether a hook takes as many parameters, none of them in another's place: hooks are called by position."""
    swapped = (one != other and one in wanted for one, other in zip(given, wanted, strict=False))
    return len(given) == len(wanted) and not any(swapped)


def _is_plain_name(name: object) -> bool:
    return isinstance(name, str) and name.replace("-", "_").isidentifier()


def _check_tensors(what: str, tensors: object) -> None:
    if not isinstance(tensors, tuple | list):
        raise SpecError(f"{what} must be a tuple, got {tensors!r}")
    for tensor in tensors:
        if not isinstance(tensor, ClientState | ServerState | Payload):
            raise SpecError(f"{what} must hold ClientState, ServerState or Payload, got {tensor!r}")
        if not _is_plain_name(tensor.name):
            raise SpecError(f"{what}: names must be letters, digits, - and _, got {tensor.name!r}")
        if sum((type(tensor), tensor.name) == (type(other), other.name) for other in tensors) > 1:
            raise SpecError(f"{what}: duplicate name {tensor.name!r}")
        if isinstance(tensor, ClientState) and (target := tensor.added_at_merge_to):
            lasting = [each for each in tensors if isinstance(each, ClientState) and not each.until_merge]
            if not tensor.until_merge or (target, tensor.scalar) not in [(each.name, each.scalar) for each in lasting]:
                raise SpecError(
                    f"{what}: {tensor.name!r} is added at a merge to {target!r}, so it needs until_merge=True, and "
                    f"{target!r} must be a ClientState of the same term and size that lasts longer"
                )


def pools_data(method: str) -> bool:
    """Whether a method trains on pooled data, by its built-in names alone; no plug-in is imported."""
    names = (name.strip() for name in method.split("+"))
    return any(METHODS[name].pools_data for name in names if name in METHODS)


def plugin_methods() -> dict[str, EntryPoint]:
    """The methods that installed packages list as entry points, by name. Nothing is imported."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def method_names() -> list[str]:
    """All names that a spec may use: built-in, registered, and listed by installed packages."""
    return [*METHODS, *(name for name in plugin_methods() if name not in METHODS)]


def find_method(name: str) -> MethodEntry:
    """The parts of a name; a method of an installed package is imported when it is first used.

    Raises:
        SpecError: Nobody knows the name, or its package cannot be imported.
    """
    if name not in METHODS and (point := plugin_methods().get(name)) is not None:
        listed = {each.module for each in entry_points(group=ENTRY_POINTS, name=name)}
        if len(listed) > 1:
            rivals = ", ".join(sorted(listed))
            raise SpecError(f"method {name!r}: several packages list it ({rivals}); uninstall all but one")
        import_module_of_user(point.module, f"method {name!r} (entry point {point.value!r})")
        if name not in METHODS:
            raise SpecError(f"method {name!r}: {point.module} does not register it")
    if name not in METHODS:
        hint = "a method of your own needs its module: --plugin MODULE, or 'plugins' in a spec"
        if LOADED_PLUGINS:
            own = ", ".join(each for each in METHODS if each not in BUILT_IN) or "no method"
            hint = f"loaded plug-ins ({', '.join(LOADED_PLUGINS)}) registered {own}"
        raise SpecError(
            f"method: unknown name {name!r}{nearest(name, method_names())}; 'fedrelay methods' lists all; {hint}"
        )
    return METHODS[name]


def load_plugins(modules: str | Sequence[str], what: str = "plugins") -> None:
    """Import plug-in modules; each registers its methods.

    Args:
        modules: The modules, as in `plugins` of a spec.
        what: The setting or option that names them, for messages.

    Raises:
        SpecError: A module cannot be imported.
    """
    if not isinstance(modules, str | list | tuple):
        raise SpecError(f"{what}: must be a list of modules such as mylab.pairs, got {modules!r}")
    for module in [modules] if isinstance(modules, str) else modules:
        if not is_module_name(module):
            raise SpecError(f"{what}: must be names of modules such as mylab.pairs, without .py, got {module!r}")
        import_module_of_user(module, what)
        LOADED_PLUGINS[module] = None
