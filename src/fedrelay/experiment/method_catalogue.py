"""The catalogue: which parts a method's name stands for.

A name stands for a route, a grouping, local terms, a merge or a warm-up; `grammar` joins names with `+`. To add a
built-in method, write one file for its part and add one line to `METHODS`. A package of your own calls `register`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fedrelay.errors import SpecError
from fedrelay.experiment.error_messages import nearest
from fedrelay.experiment.sections import Sampling, Section, Training
from fedrelay.user_code import import_module_of_user, is_module_name

if TYPE_CHECKING:
    from fedrelay.grouping.grouping import Grouping
    from fedrelay.local.terms.base import Term
    from fedrelay.merge.base import Merge
    from fedrelay.routes.base import Routing
    from fedrelay.warmup.base import Warmup

Options = Mapping[str, Any]

ENTRY_POINTS = "fedrelay.methods"
"""The entry-point group in which packages list their methods: `pairs = "mylab.pairs"`."""

T = TypeVar("T")


class PartField(Generic[T]):
    """A field whose value is a class, or the place of one in its room: `chains.Chains`. It is imported when it is read.

    So methods can be listed without their parts, which need PyTorch; importing that takes seconds.
    """

    def __init__(self, room: str, default: str | None = None) -> None:
        self.room, self.default = room, default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __set__(self, entry: MethodEntry, value: T | str) -> None:
        vars(entry)[self.name] = value

    def __get__(self, entry: MethodEntry | None, owner: type) -> T:
        found: T = self.default if entry is None else _imported(self.room, vars(entry)[self.name])  # type: ignore[assignment]
        return found


class BuiltInTerms(Mapping[str, "type[Term]"]):
    """Terms by name, each given by its place: `glam.Glam`. A term is imported when it is looked up."""

    def __init__(self, **places: str) -> None:
        self.places = places

    def __getitem__(self, name: str) -> type[Term]:
        found: type[Term] = _imported("local.terms", self.places[name])
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def _imported(room: str, part: Any) -> Any:
    """A part, or the class at a place such as `chains.Chains`."""
    return _class_at(room, part) if isinstance(part, str) else part


@cache
def _class_at(room: str, place: str) -> Any:
    file, _, name = place.partition(".")
    return getattr(import_module(f"fedrelay.{room}.{file}"), name)


@dataclass(frozen=True)
class MethodEntry:
    """The parts that one name stands for, and the merge that is used when no other name brings one."""

    summary: str
    route: PartField[type[Routing] | None] = PartField("routes")
    default_route: PartField[type[Routing] | None] = PartField("routes")
    """Used when no name brings a route."""

    grouping: PartField[type[Grouping] | None] = PartField("grouping")
    terms: Mapping[str, type[Term]] = field(default_factory=dict)
    merge: PartField[type[Merge] | None] = PartField("merge")
    default_merge: PartField[type[Merge]] = PartField("merge", "mean.Mean")
    warmup: PartField[type[Warmup] | None] = PartField("warmup")
    training: Training = "federated"
    """Where it is `pooled`, one client has all samples."""

    sampling: Sampling = "random"
    """Used unless the spec says otherwise."""

    schedule: str | None = None
    """The schedule of the learning rate, used unless the spec says otherwise."""

    clip: float | None = None
    """The maximum norm of gradients, used unless the spec says otherwise."""

    server: Options = field(default_factory=dict)
    """Options of the server stage, which follows the merge of every method; no two names may set the same one."""

    defaults: Mapping[str, Options] = field(default_factory=dict)
    """Part → options that differ from the part's own defaults; may include terms that other names bring."""

    def parts(self) -> dict[str, type[Section]]:
        """The parts by their place in a spec: `warmup`, `route`, `grouping`, `terms.prox`, `merge`, `server`."""
        found: dict[str, type[Section] | None] = {
            "warmup": self.warmup,
            "route": self.route or self.default_route,
            "grouping": self.grouping,
            **{f"terms.{name}": term for name, term in self.terms.items()},
            "merge": self.merge,
            "server": _imported("merge", "server_stage.ServerStage") if self.server else None,
        }
        return {place: part for place, part in found.items() if part is not None}

    def part_names(self) -> list[str]:
        """What the name adds to a method: `route`, `term prox`, … Nothing is imported."""
        given = {kind: vars(self)[field] for kind, field in _KINDS.items()}
        terms = {f"term {name}": name for name in self.terms}
        found = {**given, **terms, "merge": vars(self)["merge"], "server": self.server or None}
        return [kind for kind, part in found.items() if part is not None]


_KINDS = {"warm-up": "warmup", "route": "route", "grouping": "grouping"}
"""How lists name the parts that come before terms, and their fields."""

_ICG = {"assign": "icg"}
_UNIFORM = {"merge": {"weights": "uniform"}}
_FEDGSP_ROUTE = {"order": "fixed", "handover": "server"}
_SLOW_MERGES = {"terms.prox": {"mu": 1.0}, "terms.drift": {"alpha": 1.0}}
"""Models that are merged rarely are held closer together."""

METHODS: dict[str, MethodEntry] = {
    "fedavg": MethodEntry("clients train side by side, the server averages", route="singletons.Singletons"),
    "fedcyclic": MethodEntry(
        "one model travels around a ring of clients", route="ring.Ring", default_merge="last_route.LastRoute"
    ),
    "local": MethodEntry(
        "every client trains alone, the baseline of taking part",
        route="alone.Alone",
        training="alone",
        defaults=_UNIFORM,
    ),
    "fedstar": MethodEntry(
        "every client mixes its model with those of all others", route="all_to_all.AllToAll", defaults=_UNIFORM
    ),
    "fedseq": MethodEntry(
        "one model travels through each group, then these models are averaged",
        route="chains.Chains",
        grouping="grouping.Grouping",
    ),
    "fedseqinter": MethodEntry(
        "models go from group to group and are averaged every few rounds",
        route="group_to_group.GroupToGroup",
        grouping="grouping.Grouping",
        defaults=_SLOW_MERGES,
    ),
    "fedasyncseq": MethodEntry(
        "models go from group to group without waiting for slow groups",
        route="asynchronous.Asynchronous",
        grouping="grouping.Grouping",
        defaults=_SLOW_MERGES,
    ),
    "fedseq2par": MethodEntry(
        "few large groups at first, many small groups at the end",
        route="growing_group_count.GrowingGroupCount",
        grouping="grouping.Grouping",
        defaults={"grouping": _ICG},
    ),
    "fedgsp": MethodEntry(
        "few large groups at first, many small ones later, formed anew every round",
        route="growing_group_count.GrowingGroupCount",
        grouping="grouping.Grouping",
        defaults={
            "route": {"growth": "log", "pace": "federation", "regroup": "always", "handover": "server"},
            "grouping": {**_ICG, "profile": "counts", "leftovers": "drop"},
            **_UNIFORM,
        },
    ),
    "naivegsp": MethodEntry(
        "fixed random groups, clients always in the same order",
        route="chains.Chains",
        grouping="grouping.Grouping",
        defaults={"route": _FEDGSP_ROUTE, **_UNIFORM},
    ),
    "naivegsp-icg": MethodEntry(
        "fixed balanced groups, clients always in the same order",
        route="chains.Chains",
        grouping="grouping.Grouping",
        defaults={"route": _FEDGSP_ROUTE, "grouping": {**_ICG, "profile": "counts"}, **_UNIFORM},
    ),
    "astraea": MethodEntry(
        "models travel through groups whose classes are nearly uniform",
        route="chains.Chains",
        grouping="grouping.Grouping",
        defaults={"grouping": {"assign": "greedy", "distance": "kl"}},
    ),
    "relay": MethodEntry(
        "experimental: balanced groups drawn anew in each pass over all clients, look-ahead, cosine and clipping",
        route="chains.Chains",
        grouping="grouping.Grouping",
        sampling="passes",
        schedule="cosine",
        clip=1.0,
        server={"lookahead": 0.9, "ramp": True},
        defaults={"route": {"regroup": "pass"}, "grouping": _ICG},
    ),
    "spfl": MethodEntry(
        "every model visits all sampled clients, each from another start",
        route="rotations.Rotations",
        defaults=_UNIFORM,
    ),
    "cycp": MethodEntry(
        "groups of clients take turns, and their clients train side by side",
        route="cyclic_participation.CyclicParticipation",
        grouping="grouping.Grouping",
        defaults={"grouping": {"max_clients": 25, "min_samples": 1_000_000}},
    ),
    "cwt": MethodEntry(
        "one model goes around all clients, always in the same order",
        route="cyclical_transfer.CyclicalTransfer",
        default_merge="last_route.LastRoute",
    ),
    "daisy-chain": MethodEntry(
        "models go on to random clients and are averaged every few rounds",
        route="daisy_chain.DaisyChain",
        defaults=_UNIFORM,
    ),
    "random-walk": MethodEntry(
        "one model walks at random along the edges of a graph",
        route="random_walk.RandomWalk",
        default_merge="last_route.LastRoute",
    ),
    "wfsl": MethodEntry("first, one model travels through selected clients as a warm-up", warmup="wfsl.Wfsl"),
    "shared-raw": MethodEntry(
        "clients share a few samples, and the server first trains on them", warmup="shared_raw.SharedRaw"
    ),
    "fedavg-first": MethodEntry("rounds of FedAvg before another method", warmup="fedavg_first.FedAvgFirst"),
    "fedtm": MethodEntry(
        "rounds of FedAvg among large clients, then one model travels through all",
        default_route="ring.Ring",
        default_merge="last_route.LastRoute",
        warmup="large_clients_first.LargeClientsFirst",
    ),
    "ewc": MethodEntry(
        "a ring whose clients protect the weights that mattered to earlier ones",
        default_route="ring.Ring",
        terms=BuiltInTerms(fisher="fisher_penalty.FisherPenalty"),
        default_merge="last_route.LastRoute",
    ),
    "glam": MethodEntry(
        "clients also learn from the received and the global model", terms=BuiltInTerms(glam="glam.Glam")
    ),
    "fedprox": MethodEntry(
        "clients stay close to the model they received", terms=BuiltInTerms(prox="proximal_penalty.ProximalPenalty")
    ),
    "scaffold": MethodEntry(
        "control variates correct the drift of clients", terms=BuiltInTerms(control="control_variates.ControlVariates")
    ),
    "feddyn": MethodEntry(
        "a dynamic penalty brings clients' optima together",
        terms=BuiltInTerms(drift="drift_penalty.DriftPenalty"),
        merge="drift.MeanPlusDrift",
    ),
    "feddc": MethodEntry(
        "drift is decoupled and corrected",
        terms=BuiltInTerms(drift="drift_penalty.DriftPenalty", control="control_variates.ControlVariates"),
        merge="drift.MeanPlusDrift",
        defaults={"terms.drift": {"alpha": 0.01}},
    ),
    "ghbm": MethodEntry(
        "clients are pushed on as the global model moved in the last rounds",
        terms=BuiltInTerms(**{"heavy-ball": "heavy_ball.HeavyBall"}),
    ),
    "fedsam": MethodEntry(
        "clients look for flat minima, with gradients uphill of their model",
        terms=BuiltInTerms(sharpness="sharpness.Sharpness"),
    ),
    "moon": MethodEntry(
        "features stay close to the received model's, away from the client's last model's",
        terms=BuiltInTerms(contrast="contrastive_loss.ContrastiveLoss"),
    ),
    "fedmmd": MethodEntry(
        "outputs stay close in distribution to those of the received model",
        terms=BuiltInTerms(mmd="mmd_penalty.MmdPenalty"),
    ),
    "fedfusion": MethodEntry(
        "features are fused with those of the received model", terms=BuiltInTerms(fusion="feature_fusion.FeatureFusion")
    ),
    "fednova": MethodEntry("updates are divided by the number of local steps", merge="nova.Nova"),
    "feddisco": MethodEntry("clients whose classes are far from uniform get less weight", merge="disco.Disco"),
    "fedexp": MethodEntry(
        "the mean update is lengthened where the updates differ",
        merge="extrapolation.Extrapolation",
        server={"average": {"window": 2}},
    ),
    "fedadagrad": MethodEntry("the server applies the mean update with Adagrad", merge="adaptive.ServerAdagrad"),
    "fedadam": MethodEntry("the server applies the mean update with Adam", merge="adaptive.ServerAdam"),
    "fedyogi": MethodEntry("the server applies the mean update with Yogi", merge="adaptive.ServerYogi"),
    "fedavgm": MethodEntry("the server applies the mean update with momentum", merge="server_momentum.ServerMomentum"),
    "ida": MethodEntry("models far from the mean get less weight", merge="ida.Ida"),
    "median": MethodEntry("the coordinate-wise median, robust to bad clients", merge="median.Median"),
    "trimmed-mean": MethodEntry("the mean without the extremes of every coordinate", merge="trimmed_mean.TrimmedMean"),
    "krum": MethodEntry("the model closest to its neighbours", merge="krum.Krum"),
    "geometric-median": MethodEntry("the point closest to all models", merge="geometric_median.GeometricMedian"),
    "lookahead": MethodEntry(
        "the server sends the model moved on in the direction of its last change",
        server={"lookahead": 0.9},
    ),
    "fedacg": MethodEntry(
        "look-ahead at the server, and clients stay close to the model they received",
        terms=BuiltInTerms(prox="proximal_penalty.ProximalPenalty"),
        server={"lookahead": 0.85},
        defaults={"terms.prox": {"mu": 0.01}},
    ),
    "wima": MethodEntry("the mean of the last merged models is evaluated", server={"average": {"window": 10}}),
    "dp": MethodEntry(
        "clients clip their changes and add noise: differential privacy",
        terms=BuiltInTerms(dp="client_level_privacy.ClientLevelPrivacy"),
    ),
    "centralized": MethodEntry(
        "all samples in one place: the centralised baseline",
        route="centralized.Centralized",
        default_merge="last_route.LastRoute",
        training="pooled",
    ),
}
"""The methods by name: the built-in ones, then those that plug-ins register."""

BUILT_IN = frozenset(METHODS)
LOADED_PLUGINS: dict[str, None] = {}
"""The modules that `load_plugins` has imported, in this order."""


def training_of(method: str) -> Training:
    """Whether clients train together, by those names of a method that are known; no plug-in is imported."""
    names = (name.strip() for name in method.split("+"))
    return joined_training(METHODS[name] for name in names if name in METHODS)


def joined_training(entries: Iterable[MethodEntry]) -> Training:
    """Whether clients train together with a method of several names: not if one of them says so."""
    return next((entry.training for entry in entries if entry.training != "federated"), "federated")


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


def find_methods(method: str) -> dict[str, MethodEntry]:
    """The entries of all names of a method, such as `fedseq+fedprox`. No built-in part is imported.

    Raises:
        SpecError: A name is missing, unknown or repeated.
    """
    entries: dict[str, MethodEntry] = {}
    for name in (part.strip() for part in method.split("+")):
        if not name:
            raise SpecError(f"method {method!r}: a name is missing; join names as in fedseq+fedprox")
        if name in entries:
            raise SpecError(f"method {method!r}: duplicate name {name!r}")
        entries[name] = find_method(name)
    return entries


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


def import_built_in_parts() -> None:
    """Import the parts of all methods, so that those who are sent the name of a part know its class."""
    for entry in METHODS.values():
        entry.parts()
