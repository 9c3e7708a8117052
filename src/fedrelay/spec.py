"""The experiment as frozen, validated data; the same names in YAML, in Python and as `--set a.b=value`.

An `Experiment` is one method with one seed, everything a run needs. A `Comparison` is several methods and
seeds over otherwise equal settings. Anything unknown, mistyped or impossible is
a `SpecError` that names the key, what is allowed and the nearest known name.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fedrelay.errors import SpecError
from fedrelay.plain_yaml import load_file as load_file
from fedrelay.plain_yaml import parse_assignment as parse_assignment
from fedrelay.wording import nearest as nearest
from fedrelay.wording import unknown as unknown

M = TypeVar("M", bound=BaseModel)


class Section(BaseModel):
    """Base of every group of settings: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_odd_values(cls, value: Any, info: ValidationInfo) -> Any:
        """`rounds: yes` is a mistake, not one round; and no file system knows a name with a null character."""
        field = cls.model_fields[str(info.field_name)]
        if isinstance(value, str) and "\x00" in value:
            raise ValueError("must not hold a null character")
        if isinstance(value, bool) and "bool" not in str(field.annotation):
            raise ValueError("must not be a truth value")
        return value


Shift = Literal["none", "rotation", "inversion", "noise", "contrast"]


class Data(Section):
    """Which samples there are and who holds them."""

    name: str = Field("digits", description="a known data set, or the path of an .npz file")
    path: Path | None = Field(None, description="file or folder to read instead of searching")
    clients: int | None = Field(None, ge=1, description="number of clients; default 100, or all natural holders")
    partition: Literal["iid", "dirichlet", "dirichlet-class", "shards", "natural", "quantity"] | None = Field(
        None,
        description="how samples are dealt out; default natural where the data has holders, else dirichlet",
    )
    alpha: float | None = Field(
        None, ge=0, description="concentration of the Dirichlet draw; 0 = one class per client; default 0.5"
    )
    beta: float = Field(0.5, ge=0, description="synthetic data: how much the clients' inputs differ")
    shards_per_client: int = Field(2, ge=1, description="shards: how many each client gets")
    shard_size: int | None = Field(None, ge=1, description="shards: samples in each; default uses all samples")
    min_samples: int = Field(1, ge=0, description="dirichlet-class: the least a client holds")
    samples: int | None = Field(None, ge=1, description="so many train samples, classes in proportion; default all")
    test_samples: int | None = Field(None, ge=1, description="so many test samples, likewise")
    shifts: tuple[Shift, ...] = Field((), description="image changes that clients take in turn (domain shift)")
    test_shifts: tuple[Shift, ...] = Field((), description="image changes that test samples take in turn")
    public: int | None = Field(
        None,
        ge=0,
        description="test samples of every class that everybody may look at, taken out of the test set for all methods "
        "alike; default 10 where a method looks at them, else 0",
    )

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        """A setting that the chosen data or partition does not use is a mistake."""
        chosen = "synthetic" if self.name == "synthetic" else self.partition or "dirichlet"
        for setting, used_by in _USED_BY.items():
            changed = getattr(self, setting) != type(self).model_fields[setting].default
            if changed and chosen not in used_by:
                what = "synthetic data" if chosen == "synthetic" else f"the partition {chosen!r}"
                raise ValueError(f"{setting}: has no effect with {what}; it belongs to {', '.join(used_by)}")
        return self


_USED_BY = {
    "alpha": ("dirichlet", "dirichlet-class", "quantity", "synthetic"),
    "beta": ("synthetic",),
    "shards_per_client": ("shards",),
    "shard_size": ("shards",),
    "min_samples": ("dirichlet-class",),
}
"""The partitions, or the synthetic data, that look at a setting."""


class Model(Section):
    """Which network is trained."""

    name: str | None = Field(None, description="a model of the zoo; default: a small one that fits the data")
    hidden: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(None, description="mlp: widths of the hidden layers")
    stem: Literal["cifar", "imagenet"] | None = Field(
        None, description="resnet18: first layer for small or large images"
    )


class Train(Section):
    """One local pass, the same at every client."""

    epochs: int = Field(1, ge=1, description="passes over the client's samples at each visit")
    batch_size: int = Field(16, ge=1, description="samples per step")
    lr: float = Field(0.05, gt=0, description="step size")
    momentum: float = Field(0.0, ge=0, lt=1, description="momentum, reset at every visit")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty inside the step")
    clip: float | None = Field(None, gt=0, description="bound on the norm of each gradient")
    device: str = Field("cpu", description="where training runs: cpu, cuda, cuda:1, mps")


class Eval(Section):
    """When and against what the global model is judged."""

    every: int = Field(1, ge=1, description="evaluate after every so many rounds, and after the last")
    last: int = Field(10, ge=1, description="evaluations averaged into accuracy_last")
    forgetting: int = Field(
        0, ge=0, description="after every so many rounds, follow one chain: what it forgets of its clients; 0 = never"
    )
    targets: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field(
        (0.7, 0.8, 0.9), description="shares of the reference accuracy for rounds-to-target"
    )
    reference: float | None = Field(
        None,
        gt=0,
        le=1,
        description="accuracy of a centralised model; default 1, or that of `centralized` if compared",
    )
    classes: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (), description="classes whose accuracy is noted on its own as well; default those that an attack swaps"
    )


class Attack(Section):
    """Clients that work against the others."""

    name: Literal["none", "label-flip"] = Field(
        "none", description="label-flip: attackers exchange labels of their train samples"
    )
    swap: tuple[Annotated[int, Field(ge=0)], ...] = Field((), description="classes whose labels are exchanged")
    swap_list: Literal["extra-sc", "intra-sc"] | None = Field(
        None, description="a named list of them instead: 20 classes of CIFAR-100, across or inside superclasses"
    )
    pairing: Literal["fixed", "random"] = Field(
        "fixed", description="who is exchanged with whom: neighbours in the list, or pairs drawn by each attacker"
    )
    group_share: float = Field(0.5, gt=0, le=1, description="L_S, share of the groups that have attackers")
    client_share: float = Field(0.5, gt=0, le=1, description="L, share of attackers in them, of those who could")

    @model_validator(mode="after")
    def _says_what_it_needs(self) -> Self:
        if self.name == "none":
            for setting, field in type(self).model_fields.items():
                if getattr(self, setting) != field.default:
                    raise ValueError(f"{setting}: has no effect without an attack; set attack.name=label-flip")
            return self
        if bool(self.swap) == (self.swap_list is not None):
            raise ValueError("swap: label-flip needs classes to exchange, such as [0, 6], or a swap_list, not both")
        if len(self.swap) % 2 or len(set(self.swap)) < len(self.swap):
            raise ValueError(f"swap: must be pairs of different classes, got {list(self.swap)}")
        return self


class Engine(Section):
    """Where hops are carried out."""

    name: Literal["local", "ray", "flower"] = Field(
        "local", description="local: processes here; ray: the machines of a cluster; flower: nodes that keep their data"
    )
    workers: int = Field(0, ge=0, description="how many at once; 0 = one per core. Results do not depend on it")
    address: str | None = Field(
        None, min_length=1, description="the cluster: HOST:PORT of its head, or auto; default: start one here"
    )
    lanes: int = Field(
        8,
        ge=1,
        le=1024,
        description="models trained side by side as one stack where the model allows it; 1 = each alone. "
        "Another number may round differently",
    )
    superlink: str = Field("127.0.0.1:9092", pattern=r"^[^\s:]+:\d+$", description="flower: the SuperLink's HOST:PORT")
    folder: Path | None = Field(None, description="flower: the server's folder, made by `fedrelay certificates`")
    test: Path | None = Field(None, description="flower: the server's own test samples; default: nodes judge models")
    wait: float = Field(60.0, ge=0, description="flower: seconds to wait for nodes or a SuperLink that are away")

    @model_validator(mode="after")
    def _somewhere_else(self) -> Self:
        if self.address is not None and self.name != "ray":
            raise ValueError(f"address: has no effect with the {self.name} engine; it belongs to ray")
        return self


FaultKind = Literal[
    "dropout", "gone", "hang", "lost", "duplicated", "straggler",
    "nan", "inf", "shape", "zero", "explode", "sign-flip", "replace",
]  # fmt: skip


class Guard(Section):
    """What is checked before a client's model is handed on; after one that is refused the model before it goes on."""

    on_divergence: Literal["stop", "skip"] = Field(
        "stop", description="a model with values that are not finite or too large: end the run, or leave it out"
    )
    largest: float = Field(1e8, gt=0, description="a model with a value beyond it has diverged")
    norm: float | None = Field(
        None, gt=0, description="shorten updates to so many times the usual length, the median of the last round"
    )
    tolerance: float | None = Field(
        None, ge=0, description="leave out a model whose loss on the public set is higher by more than this"
    )

    @property
    def refuses(self) -> bool:
        """Whether a model may be left out."""
        return self.on_divergence == "skip" or self.tolerance is not None


class Fault(Section):
    """Something that goes wrong at clients, for experiments with it."""

    what: FaultKind = Field(description="what goes wrong")
    rate: float = Field(1.0, ge=0, le=1, description="how often, at each turn; of `gone`: the share of clients")
    clients: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(None, description="at which clients; default: all")
    first: int = Field(1, ge=1, description="the first round")
    last: int | None = Field(None, ge=1, description="the last round; default: the last of the run")
    factor: float | None = Field(
        None, gt=0, description="how much: slower (straggler), larger (explode, sign-flip, replace); default 10"
    )

    @model_validator(mode="after")
    def _everything_has_an_effect(self) -> Self:
        scaled = ("straggler", "explode", "sign-flip", "replace")
        if self.factor is not None and self.what not in scaled:
            raise ValueError(f"factor: has no effect with {self.what!r}; it belongs to {', '.join(scaled)}")
        if self.last is not None and self.what == "gone":
            raise ValueError("last: has no effect with 'gone': who is gone stays away; 'dropout' has an end")
        if self.last is not None and self.last < self.first:
            raise ValueError(f"last: must not be before the first round ({self.first}), got {self.last}")
        if self.clients == ():
            raise ValueError("clients: must name at least one client")
        return self

    @property
    def strength(self) -> float:
        """The factor, or the usual one."""
        return 10.0 if self.factor is None else self.factor


class Recovery(Section):
    """What is done when a client does not answer."""

    policy: Literal["skip", "retry", "later", "backup"] = Field(
        "skip",
        description="go on without the client, ask it again, ask it again at the end of the route, "
        "or ask a client that is not in the round",
    )
    retries: int = Field(1, ge=1, description="how often the policy is tried before the client is skipped")
    timeout: float = Field(60.0, gt=0, description="seconds after which a client that does not answer is given up")
    deadline: float | None = Field(None, gt=0, description="seconds after which routes come home, however far they are")
    min_arrivals: int = Field(1, ge=0, description="routes that must come home with something; else the round repeats")
    repeats: int = Field(3, ge=0, description="how often a round repeats before it is given up")

    @model_validator(mode="after")
    def _everything_has_an_effect(self) -> Self:
        if self.policy == "skip" and self.retries != 1:
            raise ValueError("retries: has no effect with the policy 'skip'; it belongs to retry, later and backup")
        return self


class Checkpoint(Section):
    """How often a run can be picked up again; results do not depend on it."""

    seconds: float = Field(5.0, ge=0, description="least time between two checkpoints; 0 = after every round")


Options = Mapping[str, Any]
SECTIONS: dict[str, type[Section]] = {
    "data": Data,
    "model": Model,
    "train": Train,
    "eval": Eval,
    "engine": Engine,
    "checkpoint": Checkpoint,
    "guard": Guard,
    "recovery": Recovery,
    "attack": Attack,
}
PARTS = ("warmup", "route", "grouping", "terms", "merge")
"""The parts of a method; their options live under these names and are checked against the method chosen."""


class Settings(Section):
    """What an experiment and a comparison have in common."""

    data: Data = Data()
    model: Model = Model()
    train: Train = Train()
    eval: Eval = Eval()
    engine: Engine = Engine()
    checkpoint: Checkpoint = Checkpoint()
    guard: Guard = Guard()
    recovery: Recovery = Recovery()
    faults: tuple[Fault, ...] = Field((), description="what goes wrong at clients: a list of {what, rate, clients, …}")
    attack: Attack = Attack()
    rounds: int = Field(100, ge=1, description="how many rounds")
    fraction: float = Field(0.2, gt=0, le=1, description="share of clients (or groups) that take part in a round")
    warmup: Options = Field({}, description="options of the method's warm-up")
    route: Options = Field({}, description="options of the method's route")
    grouping: Options = Field({}, description="options of the method's grouping")
    terms: Options = Field({}, description="options of the method's local terms, by term name")
    merge: Options = Field({}, description="options of the method's merge")
    clock: Options = Field({}, description="devices and links of the clients, for virtual time")
    out: Path | None = Field(None, description="folder to write to")

    @field_validator("data", "model", "engine", mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        """`data: digits` says the same as `data: {name: digits}`."""
        return {"name": value} if isinstance(value, str) else value


Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Experiment(Settings):
    """One method, one seed."""

    method: str = Field(min_length=1, description="a method, or several joined with +, e.g. fedseq+fedprox")
    seed: Seed = Field(1, description="the root of all randomness")


class Entrant(Section):
    """One method of a comparison, with settings of its own where it needs them."""

    method: str = Field(min_length=1, description="a method, or several joined with +")
    label: str | None = Field(None, description="how it is called in tables and plots; default: the method")
    warmup: Options = Field({}, description="options of the method's warm-up")
    route: Options = Field({}, description="options of the method's route")
    grouping: Options = Field({}, description="options of the method's grouping")
    terms: Options = Field({}, description="options of the method's local terms, by term name")
    merge: Options = Field({}, description="options of the method's merge")
    train: Options = Field({}, description="train settings that differ from the common ones")
    guard: Options = Field({}, description="guard settings that differ from the common ones")
    recovery: Options = Field({}, description="recovery settings that differ from the common ones")
    faults: tuple[Fault, ...] | None = Field(None, description="own faults instead of the common ones")
    attack: Options = Field({}, description="an attack on this method alone, or other settings of the common one")
    fraction: float | None = Field(None, gt=0, le=1, description="own share of clients")

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.label or self.method

    @property
    def folder(self) -> str:
        """What its folder is called: the name without characters that mean something to a file system."""
        return "".join(each if each.isalnum() or each in "+-_. " else "_" for each in self.name).strip(". ") or "_"


class Comparison(Settings):
    """Several methods, several seeds, everything else equal."""

    methods: tuple[Entrant, ...] = Field(min_length=1, description="methods, or {method, label, route, …} to vary one")
    seeds: tuple[Seed, ...] = Field((1,), min_length=1, description="one run of every method for each")

    @field_validator("methods", mode="before")
    @classmethod
    def _names_alone(cls, value: Any) -> Any:
        if isinstance(value, str) or not isinstance(value, Sequence):
            return value
        return [{"method": entry} if isinstance(entry, str) else entry for entry in value]

    @model_validator(mode="after")
    def _no_duplicates(self) -> Self:
        names, seeds = [entrant.name for entrant in self.methods], [str(seed) for seed in self.seeds]
        for what, values, advice in (("methods", names, "; give each its own label"), ("seeds", seeds, "")):
            twice = sorted({value for value in values if values.count(value) > 1})
            if twice:
                raise ValueError(f"{what}: {', '.join(twice)} stands there twice{advice}")
        folders: dict[str, str] = {}
        for entrant in self.methods:
            other = folders.setdefault(entrant.folder.casefold(), entrant.name)
            if other != entrant.name:
                raise ValueError(f"methods: the labels {other!r} and {entrant.name!r} would share a folder")
        return self


LISTED: dict[int | str, type[Section]] = {"methods": Entrant, "faults": Fault}
"""Settings that are lists, and what they list."""


def shortcuts() -> dict[str, str]:
    """Short names of settings: `clients` for `data.clients`, `lr` for `train.lr`, wherever a name is unique."""
    owners: dict[str, list[str]] = {}
    for section, model in SECTIONS.items():
        for field in model.model_fields:
            owners.setdefault(field, []).append(f"{section}.{field}")
    top_level = {*Experiment.model_fields, *Comparison.model_fields}
    return {name: paths[0] for name, paths in owners.items() if len(paths) == 1 and name not in top_level}


def validate(model: type[M], values: Mapping[str, Any], prefix: str = "") -> M:
    """Build a section from plain values, or say in one message what is wrong with them."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise SpecError("\n".join(_explain(model, detail, prefix) for detail in error.errors())) from None


def experiment(method: str, /, **settings: Any) -> Experiment:
    """An experiment from keyword arguments: sections, dotted names through `set_path`, or short names."""
    return validate(Experiment, {**nested(settings), "method": method})


def comparison(methods: Sequence[Any], /, **settings: Any) -> Comparison:
    """A comparison from keyword arguments."""
    return validate(Comparison, {**nested(settings), "methods": methods})


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under short or dotted names, put where they belong: `{"lr": 1}` → `{"train": {"lr": 1}}`."""
    short = shortcuts()
    tree: dict[str, Any] = {}
    for name, value in settings.items():
        set_path(tree, short.get(name, name), value)
    return tree


def set_path(tree: dict[str, Any], path: str, value: Any) -> None:
    """Put a value at a dotted path: `set_path(tree, "train.lr", .1)`. Mappings are merged."""
    *parents, leaf = path.split(".")
    for depth, parent in enumerate(parents):
        below = tree.setdefault(parent, {})
        if isinstance(below, str) and parent in SECTIONS:
            below = tree[parent] = {"name": below}
        if not isinstance(below, dict):
            raise SpecError(
                f"{'.'.join(parents[: depth + 1])}: is a value ({below!r}), it has no {path.split('.')[depth + 1]!r}"
            )
        tree = below
    known = tree.get(leaf)
    if isinstance(known, dict) and isinstance(value, str) and leaf in SECTIONS:
        value = {"name": value}
    if isinstance(known, dict) and isinstance(value, Mapping):
        known.update(value)
    else:
        tree[leaf] = dict(value) if isinstance(value, Mapping) else value


def _explain(model: type[BaseModel], detail: Any, prefix: str) -> str:
    """One pydantic finding as one sentence: key, what is allowed, what was given."""
    location, given, kind = list(detail["loc"]), detail["input"], detail["type"]
    key = prefix + ".".join(str(part) for part in location)
    if kind == "extra_forbidden":
        short = shortcuts() if len(location) == 1 and issubclass(model, Settings) else {}
        return f"{key}: {unknown('key', str(location[-1]), _fields_at(model, location[:-1]), also=short)}"
    if kind == "missing":
        return f"{key}: is required"
    message = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    message = re.sub(r"a valid (dictionary|mapping).*", "a mapping of settings", message)
    hint = (
        nearest(given, detail["ctx"]["expected"].split("'")[1::2])
        if kind == "literal_error" and isinstance(given, str)
        else ""
    )
    shown = reprlib.repr(given)
    if kind == "value_error" and isinstance(given, Mapping | BaseModel):
        return f"{key}.{message}" if location else f"{prefix}{message}"  # of a whole section; it names its own key
    return f"{key}: {message}, got {shown}{hint}"


def _fields_at(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """The keys allowed at a place inside a model."""
    for part in location:
        if part in LISTED:
            model = LISTED[part]
        elif part in SECTIONS:
            model = SECTIONS[str(part)]
    return list(model.model_fields)
