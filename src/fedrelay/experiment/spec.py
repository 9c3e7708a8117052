"""The experiment as frozen, validated data; the same names in YAML, in Python and as `--set a.b=value`.

An `Experiment` is one method with one seed, everything a run needs. A `Comparison` is several methods and
seeds over otherwise equal settings. Anything unknown, mistyped or impossible is
a `SpecError` that names the key, what is allowed and the nearest known name.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from fedrelay.errors import SpecError
from fedrelay.experiment.error_messages import in_plain_words, one_finding_per_value
from fedrelay.experiment.error_messages import nearest as nearest
from fedrelay.experiment.error_messages import unknown as unknown
from fedrelay.experiment.sections import AttackSettings as AttackSettings
from fedrelay.experiment.sections import CheckpointSettings as CheckpointSettings
from fedrelay.experiment.sections import DataSettings as DataSettings
from fedrelay.experiment.sections import EngineSettings as EngineSettings
from fedrelay.experiment.sections import EvalSettings as EvalSettings
from fedrelay.experiment.sections import FaultKind as FaultKind
from fedrelay.experiment.sections import FaultSettings as FaultSettings
from fedrelay.experiment.sections import GuardSettings as GuardSettings
from fedrelay.experiment.sections import LearningRateAlongChainSettings as LearningRateAlongChainSettings
from fedrelay.experiment.sections import LearningRateScheduleSettings as LearningRateScheduleSettings
from fedrelay.experiment.sections import ModelSettings as ModelSettings
from fedrelay.experiment.sections import RecoverySettings as RecoverySettings
from fedrelay.experiment.sections import Sampling as Sampling
from fedrelay.experiment.sections import Section as Section
from fedrelay.experiment.sections import StopSettings as StopSettings
from fedrelay.experiment.sections import TableSettings as TableSettings
from fedrelay.experiment.sections import TrainSettings as TrainSettings
from fedrelay.experiment.sections import TransferSettings as TransferSettings
from fedrelay.experiment.yaml_files import load_file as load_file
from fedrelay.experiment.yaml_files import parse_assignment as parse_assignment

M = TypeVar("M", bound=BaseModel)


Options = Mapping[str, Any]
SECTIONS: dict[str, type[Section]] = {
    "data": DataSettings,
    "model": ModelSettings,
    "train": TrainSettings,
    "transfer": TransferSettings,
    "eval": EvalSettings,
    "stop": StopSettings,
    "engine": EngineSettings,
    "checkpoint": CheckpointSettings,
    "guard": GuardSettings,
    "recovery": RecoverySettings,
    "attack": AttackSettings,
}
NAMED_SETTINGS = (*SECTIONS, "schedule", "chain_schedule")
"""Settings that are a name with options; the name alone can stand for them."""

PARTS = ("warmup", "route", "grouping", "terms", "merge", "server")
"""The parts of a method; their options live under these names and are checked against the method chosen."""


class CommonSettings(Section):
    """What an experiment and a comparison have in common."""

    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    task: Options = Field({}, description="what is learned: a task and its options; default: the task of the data")
    train: TrainSettings = TrainSettings()
    transfer: TransferSettings = TransferSettings()
    eval: EvalSettings = EvalSettings()
    stop: StopSettings = StopSettings()
    engine: EngineSettings = EngineSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    guard: GuardSettings = GuardSettings()
    recovery: RecoverySettings = RecoverySettings()
    faults: tuple[FaultSettings, ...] = Field((), description="faults to simulate: a list of {what, rate, clients, …}")
    withdrawn: dict[str, Annotated[int, Field(ge=0)]] = Field(
        {}, description="clients that leave for good, by number or node name, and the last round of each"
    )
    attack: AttackSettings = AttackSettings()
    rounds: int = Field(100, ge=1, description="number of rounds")
    fraction: float = Field(0.2, gt=0, le=1, description="share of clients (or groups) that take part in a round")
    sampling: Sampling | None = Field(
        None,
        description="who takes part in a round: random; passes: every client (or group) once before anyone twice; "
        "default that of the method, random for most",
    )
    warmup: Options = Field({}, description="options of the method's warm-up")
    route: Options = Field({}, description="options of the method's route")
    grouping: Options = Field({}, description="options of the method's grouping")
    terms: Options = Field({}, description="options of the method's local terms, by term name")
    merge: Options = Field({}, description="options of the method's merge")
    server: Options = Field({}, description="what the server does after each merge: look-ahead, momentum, averages")
    clock: Options = Field({}, description="devices and links of the clients, for virtual time")
    plugins: tuple[str, ...] = Field((), description="modules that register your own methods, such as mylab.pairs")
    out: Path | None = Field(None, description="folder to write to; commands create a new one in runs/ by default")

    @field_validator("data", "model", "task", "engine", mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        """`data: digits` says the same as `data: {name: digits}`."""
        return {"name": value} if isinstance(value, str) else value

    @field_validator("plugins", mode="before")
    @classmethod
    def _one_plugin(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Experiment(CommonSettings):
    """One method, one seed."""

    method: str = Field(min_length=1, description="a method, or several joined with +, e.g. fedseq+fedprox")
    seed: Seed = Field(1, description="seed of all random draws")

    @property
    def data_at_nodes(self) -> bool:
        """Whether the data stay at nodes. Then every model goes through the server, and times are real."""
        return self.engine.name == "flower"


class ComparisonEntry(Section):
    """One method of a comparison, with settings of its own where it needs them."""

    method: str = Field(min_length=1, description="a method, or several joined with +")
    label: str | None = Field(None, description="name in tables and figures; default: the method")
    warmup: Options = Field({}, description="options of the method's warm-up")
    route: Options = Field({}, description="options of the method's route")
    grouping: Options = Field({}, description="options of the method's grouping")
    terms: Options = Field({}, description="options of the method's local terms, by term name")
    merge: Options = Field({}, description="options of the method's merge")
    server: Options = Field({}, description="what the server does after each merge")
    train: Options = Field({}, description="train settings that differ from the common ones")
    transfer: Options = Field({}, description="transfer settings that differ from the common ones")
    guard: Options = Field({}, description="guard settings that differ from the common ones")
    recovery: Options = Field({}, description="recovery settings that differ from the common ones")
    faults: tuple[FaultSettings, ...] | None = Field(
        None, description="faults of this method, instead of the common ones"
    )
    attack: Options = Field({}, description="attack settings that differ from the common ones")
    fraction: float | None = Field(None, gt=0, le=1, description="share of clients of this method")
    sampling: Sampling | None = Field(None, description="who takes part in a round of this method: random or passes")

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.label or self.method

    @property
    def folder(self) -> str:
        """What its folder is called: the name without characters that mean something to a file system."""
        return "".join(each if each.isalnum() or each in "+-_. " else "_" for each in self.name).strip(". ") or "_"


MOST_AXES = 2
"""A table and a heat map have two sides."""

NO_AXES = ("methods", "method", "seeds", "seed", "baseline", "sweep", "out", "plugins", "eval", "engine", "checkpoint")
"""What cannot be an axis of a comparison: all cells have the same methods, seeds and metric."""


class Comparison(CommonSettings):
    """Several methods, several seeds, everything else equal."""

    methods: tuple[ComparisonEntry, ...] = Field(
        min_length=1, description="methods; a mapping {method, label, route, …} changes settings of one"
    )
    seeds: tuple[Seed, ...] = Field((1,), min_length=1, description="every method runs once for each seed")
    baseline: str | None = Field(
        None, description="the method, by its label, that all others are compared with; default: the first"
    )
    sweep: Mapping[str, tuple[Any, ...]] = Field(
        {},
        description="one or two settings and their values: every method runs with each, such as {data.alpha: [0, 1]}",
    )

    @field_validator("sweep", mode="before")
    @classmethod
    def _full_names(cls, sweep: Any) -> Any:
        return {full_path(str(key)): values for key, values in sweep.items()} if isinstance(sweep, Mapping) else sweep

    @field_validator("sweep")
    @classmethod
    def _check_axes(cls, sweep: Mapping[str, tuple[Any, ...]]) -> Mapping[str, tuple[Any, ...]]:
        if len(sweep) > MOST_AXES:
            raise ValueError(
                f"{', '.join(sweep)}: at most {MOST_AXES} settings; compare once for each value of the others"
            )
        for key, values in sweep.items():
            if key.split(".")[0] in NO_AXES:
                raise ValueError(f"{key}: cannot be swept: it is no setting of a run, or would make runs incomparable")
            if not all(isinstance(value, str | int | float) for value in values):
                raise ValueError(f"{key}: needs plain values: numbers, words, true or false")
            if len(values) < 2 or len({str(value) for value in values}) < len(values):
                raise ValueError(f"{key}: needs at least two values, all different")
        return sweep

    @field_validator("methods", mode="before")
    @classmethod
    def _names_alone(cls, value: Any) -> Any:
        if isinstance(value, str) or not isinstance(value, Sequence):
            return value
        return [{"method": entry} if isinstance(entry, str) else entry for entry in value]

    @model_validator(mode="after")
    def _no_duplicates(self) -> Self:
        names, seeds = [entry.name for entry in self.methods], [str(seed) for seed in self.seeds]
        for what, values, advice in (("methods", names, "; give each its own label"), ("seeds", seeds, "")):
            twice = sorted({value for value in values if values.count(value) > 1})
            if twice:
                raise ValueError(f"{what}: {', '.join(twice)} is listed twice{advice}")
        folders: dict[str, str] = {}
        ordered: dict[str, str] = {}
        for entry in self.methods:
            other = ordered.setdefault("+".join(sorted(map(str.strip, entry.name.split("+")))), entry.name)
            if other != entry.name and not entry.label:
                raise ValueError(f"methods: {entry.name!r} is {other!r} in another order; keep one, or label one")
            other = folders.setdefault(entry.folder.casefold(), entry.name)
            if other != entry.name:
                raise ValueError(f"methods: the labels {other!r} and {entry.name!r} would share a folder")
        if self.baseline is not None and self.baseline not in names:
            raise ValueError(f"baseline: {self.baseline!r} is none of the methods ({', '.join(names)})")
        return self


LISTED: dict[int | str, type[Section]] = {"methods": ComparisonEntry, "faults": FaultSettings}
"""Settings that are lists, and what they list."""


@cache
def shortcuts() -> dict[str, str]:
    """Short names of settings: `clients` for `data.clients`, `lr` for `train.lr`, wherever a name is unique."""
    owners: dict[str, list[str]] = {}
    for section, model in SECTIONS.items():
        for field in model.model_fields:
            owners.setdefault(field, []).append(f"{section}.{field}")
    top_level = {*Experiment.model_fields, *Comparison.model_fields}
    return {name: paths[0] for name, paths in owners.items() if len(paths) == 1 and name not in top_level}


REPLACED = {
    "observer": "this setting is now called callbacks",
    "route.relay": "this setting is now called route.handover",
    "train.lr_decay": "was replaced by train.schedule; `lr_decay: 0.9` is `schedule: {name: step, factor: 0.9}`",
}
"""Settings of older versions → what to use now."""


def validate(model: type[M], values: Mapping[str, Any], prefix: str = "") -> M:
    """Build a section from plain values, or say in one message what is wrong with them."""
    for old, advice in REPLACED.items():
        section, _, key = old.rpartition(".")
        place = values.get(section) if section else values
        if isinstance(place, Mapping) and key in place:
            raise SpecError(f"{old}: {advice}")
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise as_spec_error(model, error, prefix) from None


def as_spec_error(model: type[BaseModel], error: ValidationError, prefix: str = "") -> SpecError:
    """What pydantic found wrong with the values of a section, in plain words."""
    # a list whose entries are all wrong counts as too short, too
    found = [each for each in error.errors() if each["type"] != "too_short" or not each["input"]]
    return SpecError("\n".join(_explain(model, detail, prefix) for detail in one_finding_per_value(model, found)))


def experiment(method: str, /, **settings: Any) -> Experiment:
    """An experiment from keyword arguments: sections, dotted names through `set_path`, or short names."""
    return validate(Experiment, {**nested(settings), "method": method})


def comparison(methods: Sequence[Any], /, **settings: Any) -> Comparison:
    """A comparison from keyword arguments."""
    return validate(Comparison, {**nested(settings), "methods": methods})


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under short or dotted names, put where they belong: `{"lr": 1}` → `{"train": {"lr": 1}}`."""
    tree: dict[str, Any] = {}
    for name, value in settings.items():
        set_path(tree, full_path(name), value)
    return tree


def full_path(name: str) -> str:
    """The dotted path of a setting that may have a short name: `lr` → `train.lr`, also of one that was replaced.

    >>> full_path("schedule.floor")
    'train.schedule.floor'
    """
    first, dot, rest = name.partition(".")
    paths = shortcuts() | {path.split(".")[-1]: path for path in REPLACED}
    return f"{paths.get(first, first)}{dot}{rest}"


def dotted_settings(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and value of every setting of a tree.

    >>> dict(dotted_settings({"rounds": 3, "train": {"lr": 0.1}}))
    {'rounds': 3, 'train.lr': 0.1}
    """
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from dotted_settings(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def set_path(tree: dict[str, Any], path: str, value: Any) -> None:
    """Put a value at a dotted path: `set_path(tree, "train.lr", .1)`. Mappings are merged."""
    *parents, leaf = path.split(".")
    for depth, parent in enumerate(parents):
        below = tree.setdefault(parent, {})
        if isinstance(below, str) and parent in NAMED_SETTINGS:
            below = tree[parent] = {"name": below}
        if not isinstance(below, dict):
            raise SpecError(
                f"{'.'.join(parents[: depth + 1])}: is a value ({below!r}), it has no {path.split('.')[depth + 1]!r}"
            )
        tree = below
    known = tree.get(leaf)
    if isinstance(known, dict) and isinstance(value, str) and leaf in NAMED_SETTINGS:
        value = {"name": value}
    if isinstance(known, dict) and isinstance(value, Mapping):
        known.update(value)
    else:
        tree[leaf] = dict(value) if isinstance(value, Mapping) else value


def has_path(tree: Mapping[str, Any], path: str) -> bool:
    """Whether a tree of settings has a value at a dotted path."""
    first, _, rest = path.partition(".")
    below = tree.get(first)
    return first in tree and (not rest or (isinstance(below, Mapping) and has_path(below, rest)))


def _explain(model: type[BaseModel], detail: Any, prefix: str) -> str:
    """One pydantic finding as one sentence: key, what is allowed, what was given."""
    location, given, kind = list(detail["loc"]), detail["input"], detail["type"]
    key = prefix + ".".join(str(part) for part in location)
    if kind == "extra_forbidden":
        short = shortcuts() if len(location) == 1 and issubclass(model, CommonSettings) else {}
        if key in short:  # commands and Python functions have replaced short names before
            return f"{key}: in a file, put it into the section {short[key].split('.')[0]!r}"
        return f"{key}: {unknown('key', str(location[-1]), _fields_at(model, location[:-1]), also=short)}"
    if kind == "missing":
        return f"{key}: is required"
    message = in_plain_words(detail["msg"])
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
        elif part in model.model_fields and isinstance(model.model_fields[str(part)].default, Section):
            model = type(model.model_fields[str(part)].default)
    return list(model.model_fields)
