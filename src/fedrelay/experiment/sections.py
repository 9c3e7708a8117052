"""The sections of an experiment: data, model, training and the rest, each frozen and checked by itself."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fedrelay.errors import SpecError
from fedrelay.experiment.error_messages import nearest
from fedrelay.user_code import call_own, find_function, is_code_reference, module_of_reference


class Section(BaseModel):
    """Base of every group of settings: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_odd_values(cls, value: Any, info: ValidationInfo) -> Any:
        """`rounds: yes` is a mistake, not one round; and no file system knows a name with a null character."""
        field = cls.model_fields[str(info.field_name)]
        if isinstance(value, str) and "\x00" in value:
            raise ValueError("must not contain a null character")
        if isinstance(value, bool) and "bool" not in str(field.annotation):
            raise ValueError("must not be true or false")
        return value


Sampling = Literal["random", "passes"]
"""How the clients or groups of a round are sampled."""

Training = Literal["federated", "alone", "pooled"]
"""Whether clients train together, each alone, or on the samples of all in one place."""

Shift = Literal["none", "rotation", "inversion", "noise", "contrast"]


class TableSettings(Section):
    """How a table becomes samples: the roles of its columns, its test rows, and how numbers are scaled."""

    target: str | None = Field(None, description="the column to predict")
    client: str | None = Field(
        None, description="the column with the client of each row; default: rows are split by data.partition"
    )
    id: str | None = Field(
        None, description="the column with the name of each row; it is not learned from, exported predictions have it"
    )
    test: float | Path = Field(
        0.2, description="test rows: a share of the rows of every client and label, or a file of their own"
    )
    categorical: tuple[str, ...] = Field(
        (), description="columns of numbers that are categories; columns of text always are"
    )
    drop: tuple[str, ...] = Field((), description="columns that are left out, such as the number of a patient")
    scaling: Literal["shared", "client", "none"] = Field(
        "shared",
        description="mean and deviation that numbers are standardised with: of all clients' train rows, of the "
        "client's own, or none at all",
    )
    mark_missing: bool = Field(
        True, description="add a column of 0 and 1 for each column with missing values: whether the value is missing"
    )

    @field_validator("test", mode="before")
    @classmethod
    def _share_or_file(cls, value: Any) -> Any:
        if isinstance(value, str | Path):
            return Path(value)
        if isinstance(value, int | float) and 0 < value < 1:
            return float(value)
        raise ValueError("must be a share between 0 and 1, or a .csv or .parquet file")


class DataSettings(Section):
    """The data set and its partition."""

    name: str = Field("digits", description="a data set, or the path of an .npz, .csv or .parquet file")
    path: Path | None = Field(None, description="file or folder of the data set, instead of searching for it")
    clients: int | None = Field(
        None, ge=1, description="number of clients; default 100, or all natural clients of the data"
    )
    partition: Literal["iid", "dirichlet", "dirichlet-class", "shards", "natural", "quantity"] | None = Field(
        None,
        description="how samples are split; default natural if the data have natural clients, else dirichlet",
    )
    alpha: float | None = Field(
        None, ge=0, description="concentration of the Dirichlet distribution; 0 = one class per client; default 0.5"
    )
    beta: float = Field(0.5, ge=0, description="synthetic data: how much the clients' inputs differ")
    shards_per_client: int = Field(2, ge=1, description="shards: number per client")
    shard_size: int | None = Field(None, ge=1, description="shards: samples in each; default: all samples are used")
    min_samples: int = Field(1, ge=0, description="dirichlet-class: minimum number of samples of a client")
    samples: int | None = Field(
        None, ge=1, description="number of train samples to use, in the same class proportions; default all"
    )
    test_samples: int | None = Field(
        None, ge=1, description="number of test samples to use, in the same class proportions; default all"
    )
    shifts: tuple[Shift, ...] = Field(
        (), description="changes of the images, applied to the clients in turn (domain shift)"
    )
    test_shifts: tuple[Shift, ...] = Field((), description="changes of the test images, applied in turn")
    public: int | None = Field(
        None,
        ge=0,
        description="public samples per class, taken out of the test set for all methods; default 10 if a method needs "
        "them, else 0",
    )

    validation: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of each client's train samples kept for choosing the best model and when to stop",
    )
    holdout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of each client's samples held out to evaluate models on that client (eval.per_client)",
    )
    table: TableSettings = Field(TableSettings(), description="how a .csv or .parquet table becomes samples")

    @model_validator(mode="after")
    def _refuse_unused_settings(self) -> Self:
        """A setting that the chosen data or partition does not use is a mistake."""
        chosen = "synthetic" if self.name == "synthetic" else self.partition or "dirichlet"
        for setting, used_by in _USED_BY.items():
            changed = getattr(self, setting) != type(self).model_fields[setting].default
            if changed and chosen not in used_by:
                what = "synthetic data" if chosen == "synthetic" else f"the partition {chosen!r}"
                raise ValueError(f"{setting}: has no effect with {what}; only with {', '.join(used_by)}")
        return self


_USED_BY = {
    "alpha": ("dirichlet", "dirichlet-class", "quantity", "synthetic"),
    "beta": ("synthetic",),
    "shards_per_client": ("shards",),
    "shard_size": ("shards",),
    "min_samples": ("dirichlet-class",),
}
"""The partitions, or the synthetic data, that use a setting."""


class ModelSettings(Section):
    """The model."""

    name: str | None = Field(
        None, description="a model of the zoo, or your own as MODULE:FUNCTION; default: a small one that fits the data"
    )
    hidden: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(None, description="mlp: widths of the hidden layers")
    stem: Literal["cifar", "imagenet"] | None = Field(
        None, description="resnet18: first layer for small or large images"
    )


class LearningRateScheduleSettings(Section):
    """The learning rate over the rounds of a run, warm-ups of the method included."""

    name: str | None = Field(
        None,
        description="how the learning rate changes from round to round: constant; step: multiplied by `factor` after "
        "`every` rounds; cosine: along half a cosine towards `floor`; warmup: rises over `rounds` rounds, then `then`; "
        "or your own factor of (round, hop) as MODULE:FUNCTION; default: as the method says, constant for most",
    )
    every: int = Field(1, ge=1, description="step: rounds between two changes")
    factor: float | None = Field(None, gt=0, le=1, description="step: factor of each change")
    floor: float = Field(0.0, ge=0, lt=1, description="cosine: what is approached, as a share of train.lr")
    rounds: int | None = Field(None, ge=1, description="warmup: rounds before the full learning rate")
    then: Literal["constant", "cosine"] = Field("constant", description="warmup: what follows it")

    @field_validator("name")
    @classmethod
    def _name_or_function(cls, name: str | None) -> str | None:
        if name is not None and name not in _SCHEDULE_OPTIONS and not is_code_reference(name):
            names = ", ".join(_SCHEDULE_OPTIONS)
            raise ValueError(f"must be {names}, or MODULE:FUNCTION{nearest(name, _SCHEDULE_OPTIONS)}")
        return name

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        """An option that the chosen schedule does not use is a mistake."""
        used = _SCHEDULE_OPTIONS.get(self.name or "", set()) | ({"floor"} if self.then == "cosine" else set())
        for option in ("every", "factor", "floor", "rounds", "then"):
            if option not in used and getattr(self, option) != type(self).model_fields[option].default:
                owners = ", ".join(name for name, options in _SCHEDULE_OPTIONS.items() if option in options)
                if self.name is None:
                    raise ValueError(f"{option}: needs a name too: {owners}")
                raise ValueError(f"{option}: has no effect with {self.name!r}; only with {owners}")
        if self.name == "step" and self.factor is None:
            raise ValueError("factor: is required with 'step', such as 0.5")
        if self.name == "warmup" and self.rounds is None:
            raise ValueError("rounds: is required with 'warmup', such as 5")
        return self

    @property
    def depends_on_rounds(self) -> bool:
        """Whether a round's learning rate depends on the number of rounds of the run."""
        return "cosine" in (self.name, self.then)

    def at_round(self, round: int, rounds: int, hop: int = 0) -> float:
        """The factor of the learning rate in a round, out of so many rounds; a function of the user's own gets the hop.

        Profiles are computed before the first round, with the learning rate of the first.
        """
        before, warm = max(0, round - 1), self.rounds or 0
        if self.name is not None and self.name not in _SCHEDULE_OPTIONS:
            return _own_factor(self.name, before + 1, hop)
        if self.factor is not None:
            return self.factor ** (before // self.every)
        if before < warm:
            return (before + 1) / (warm + 1)
        if self.depends_on_rounds:
            # The last round is one step short of the floor: with a floor of 0 it would not train at all.
            return cosine_between(1.0, self.floor, (before - warm) / (rounds - warm))
        return 1.0


def _own_factor(path: str, round: int, hop: int) -> float:
    """What a function of the user's own returns for a round, from 1, and a hop, from 0."""
    what = f"train.schedule: {path}({round}, {hop})"
    found = call_own(find_function(path), what, round, hop)
    if not isinstance(found, Real) or isinstance(found, bool) or not 0 < float(found) < math.inf:
        raise SpecError(f"{what} must return a factor of train.lr, a number above 0, got {found!r}")
    return float(found)


_SCHEDULE_OPTIONS: dict[str, set[str]] = {
    "constant": set(),
    "step": {"every", "factor"},
    "cosine": {"floor"},
    "warmup": {"rounds", "then"},
}
"""The options that a schedule uses."""


class LearningRateAlongChainSettings(Section):
    """The learning rate along a chain."""

    name: Literal["constant", "linear", "cosine"] = Field(
        "constant",
        description="how the learning rate changes from hop to hop of a route: constant; linear or cosine: from "
        "train.lr at the first hop to `end` at the last",
    )
    end: float | None = Field(
        None, gt=0, description="linear, cosine: the learning rate of the last hop, as a multiple of train.lr"
    )

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        if self.name == "constant" and self.end is not None:
            raise ValueError("end: has no effect with 'constant'; only with linear, cosine")
        if self.name != "constant" and self.end is None:
            raise ValueError(f"end: is required with {self.name!r}, such as 0.1")
        return self

    def at_hop(self, index: int, length: int) -> float:
        """The factor of the learning rate at a hop, counted from 0, of a route of this length."""
        if self.end is None or length == 1:
            return 1.0
        passed = index / (length - 1)
        return cosine_between(1.0, self.end, passed) if self.name == "cosine" else 1.0 + (self.end - 1.0) * passed


def cosine_between(start: float, end: float, passed: float) -> float:
    """The value after a share of half a cosine from `start` to `end`."""
    return end + (start - end) * (1.0 + math.cos(math.pi * passed)) / 2


Precision = Literal["float32", "bf16"]

StepRule = Literal["by-size", "equal", "inverse-size"]
"""How the steps of a hop depend on the number of samples of the client."""

OPTIMIZER_NAMES = ("sgd", "adam", "adamw", "rmsprop")
"""The optimisers that are built in."""


class TrainSettings(Section):
    """Local training at every hop."""

    epochs: int = Field(1, ge=1, description="passes over the client's samples per hop")
    steps: StepRule | Annotated[int, Field(ge=1)] = Field(
        "by-size",
        description="steps per hop: by-size: `epochs` passes over the client's samples; equal: as many as a client of "
        "average size; inverse-size: the more, the fewer samples a client has; or a number",
    )
    batch_size: int = Field(16, ge=1, description="samples per step")
    batches: Literal["shuffled", "class-weighted"] = Field(
        "shuffled",
        description="shuffled: each sample once in a pass; class-weighted: drawn so that all classes of the client are "
        "equally likely",
    )
    optimizer: str = Field(
        "sgd",
        description="optimizer: sgd, adam, adamw, rmsprop, or the class of an elementwise one as MODULE:CLASS, such as "
        "torch.optim:NAdam",
    )
    optimizer_options: Mapping[str, Any] = Field(
        {}, description="options of the optimizer, such as {betas: [0.9, 0.99]}"
    )
    optimizer_state: Literal["reset", "client", "payload"] = Field(
        "reset",
        description="what the optimizer remembers between hops: reset: nothing; client: each client keeps it for its "
        "next hop; payload: it travels with the model, and the server averages it",
    )
    lr: float = Field(0.05, gt=0, description="learning rate")
    schedule: LearningRateScheduleSettings = Field(
        LearningRateScheduleSettings(),
        description="learning rate over rounds: constant, step, cosine, warmup, or your own",
    )
    chain_schedule: LearningRateAlongChainSettings = Field(
        LearningRateAlongChainSettings(), description="learning rate along a chain: constant, linear, cosine"
    )
    momentum: float = Field(0.0, ge=0, lt=1, description="sgd: momentum")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty; adamw: decay of the weights themselves")
    clip: float | None = Field(
        None,
        ge=0,
        description="maximum norm of each gradient; 0: no maximum; default: as the method says, no maximum for most",
    )
    precision: Precision = Field(
        "float32",
        description="numbers of forward and backward passes: float32; bf16: bfloat16 where PyTorch's autocast uses it, "
        "while weights, loss and optimizer stay float32",
    )
    device: str = Field("cpu", description="device for training: cpu, cuda, cuda:1")

    @field_validator("schedule", "chain_schedule", mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        """`schedule: cosine` says the same as `schedule: {name: cosine}`."""
        if callable(value):
            raise ValueError("must be a name or MODULE:FUNCTION; workers, nodes and resume find a function by its name")
        return {"name": value} if isinstance(value, str) else value

    @field_validator("optimizer")
    @classmethod
    def _name_or_class(cls, name: str) -> str:
        if name not in OPTIMIZER_NAMES and not is_code_reference(name):
            names = ", ".join(OPTIMIZER_NAMES)
            hint = nearest(name, OPTIMIZER_NAMES)
            raise ValueError(f"must be {names}, or MODULE:CLASS such as torch.optim:NAdam{hint}")
        return name

    @model_validator(mode="after")
    def _check_optimizer(self) -> Self:
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(f"momentum: has no effect with the optimizer {self.optimizer!r}; only with sgd")
        if self.optimizer_state != "reset" and self.optimizer == "sgd" and not self.momentum:
            raise ValueError("optimizer_state: sgd remembers nothing without train.momentum; use 'reset'")
        return self

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        if isinstance(self.steps, int) and self.epochs != 1:
            raise ValueError(f"epochs: has no effect with steps {self.steps}; set one of them")
        return self

    @property
    def own_code_references(self) -> Mapping[str, str]:
        """Setting → `MODULE:NAME`, for what comes from outside FedRelay, except optimizers of PyTorch."""
        of_torch = module_of_reference(self.optimizer).split(".")[:2] == ["torch", "optim"]
        references = {"train.optimizer": "" if of_torch else self.optimizer, "train.schedule": self.schedule.name or ""}
        return {setting: reference for setting, reference in references.items() if is_code_reference(reference)}

    @property
    def own_modules(self) -> tuple[str, ...]:
        """The modules of these references."""
        return tuple(map(module_of_reference, self.own_code_references.values()))

    @property
    def depends_on_rounds(self) -> bool:
        """Whether the training of a round depends on the number of rounds of the run, so that a finished run cannot
        be extended."""
        return self.schedule.depends_on_rounds

    def at(self, round: int, rounds: int) -> Self:
        """These settings with the learning rate of a round as `lr`, the same in all rounds."""
        if self.schedule.name in (None, "constant"):
            return self
        lr = self.lr * self.schedule.at_round(round, rounds)
        return self.model_copy(update={"lr": lr, "schedule": LearningRateScheduleSettings()})

    def learning_rate(self, round: int, rounds: int, hop: int = 0, hops: int = 1) -> float:
        """The learning rate of a hop.

        Args:
            round: The round, from 1; 0 for work before the first round.
            rounds: The number of rounds of the run.
            hop: The place of the hop on its route, from 0.
            hops: The number of hops of the route.
        """
        return self.lr * self.schedule.at_round(round, rounds, hop) * self.chain_schedule.at_hop(hop, hops)


class EvalSettings(Section):
    """Evaluation of the global model."""

    every: int = Field(1, ge=1, description="evaluate every N rounds, and after the last")
    subset: int | None = Field(
        None,
        ge=1,
        description="evaluate rounds on this number of test samples, and of validation samples; the end of the run is "
        "evaluated on all; default all",
    )
    metric: str | None = Field(
        None,
        description="the metric that tables, targets and curves show; default that of the task, such as accuracy",
    )
    last: int = Field(
        10, ge=1, description="number of last evaluations averaged into accuracy_last, or METRIC_last; with subset, 1"
    )
    forgetting: int = Field(
        0, ge=0, description="every N rounds, follow one chain and measure what it forgets; 0 = never"
    )
    targets: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field(
        (0.7, 0.8, 0.9),
        min_length=1,
        description="target accuracies, as shares of the reference; of errors, 0.8 means reference / 0.8",
    )
    reference: float | None = Field(
        None,
        gt=0,
        description="reference accuracy; default that of `centralized` if it is compared, else 1; metrics that are no "
        "shares have no targets without a reference",
    )
    classes: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (), description="classes whose accuracy is also recorded; default those that an attack swaps"
    )
    per_client: int = Field(
        0,
        ge=0,
        description="evaluate models on every client's held-out samples every N rounds, and after the last; 0 = never",
    )
    fine_tune: int = Field(
        0,
        ge=0,
        description="per_client: evaluate also after this many steps of training on the client's own train samples",
    )

    @model_validator(mode="after")
    def _refuse_unused_settings(self) -> Self:
        if self.fine_tune and not self.per_client:
            raise ValueError("fine_tune: has no effect without per_client")
        return self

    @property
    def averaged(self) -> int:
        """How many evaluations METRIC_last is the mean of: with a subset, only one is on all samples."""
        return self.last if self.subset is None else 1


class StopSettings(Section):
    """When a run stops before its last round."""

    patience: int | None = Field(
        None, ge=1, description="stop after this many evaluations without a gain in the metric, on validation samples"
    )
    min_gain: float = Field(0.0, ge=0, description="patience: smaller gains do not count")
    target: float | None = Field(
        None, description="stop when the metric reaches this value, on validation samples if there are any"
    )
    max_bytes: int | None = Field(None, ge=1, description="stop after the round in which this many bytes were sent")
    max_updates: int | None = Field(
        None, ge=1, description="stop after the round in which this number of client updates is reached"
    )
    max_hours: float | None = Field(None, gt=0, description="stop after this many hours of virtual time")
    max_wall: float | None = Field(
        None, gt=0, description="stop after this many seconds of real time; the only limit that differs between runs"
    )

    @model_validator(mode="after")
    def _refuse_unused_settings(self) -> Self:
        if self.min_gain and self.patience is None:
            raise ValueError("min_gain: has no effect without patience")
        return self


class AttackSettings(Section):
    """Attacks by clients."""

    name: Literal["none", "label-flip"] = Field(
        "none", description="label-flip: attackers swap labels of their train samples"
    )
    swap: tuple[Annotated[int, Field(ge=0)], ...] = Field((), description="classes whose labels are swapped")
    swap_list: Literal["extra-sc", "intra-sc"] | None = Field(
        None, description="a named list of classes instead: 20 classes of CIFAR-100, across or within superclasses"
    )
    pairing: Literal["fixed", "random"] = Field(
        "fixed", description="which classes are swapped: neighbours in the list, or random pairs of each attacker"
    )
    group_share: float = Field(0.5, gt=0, le=1, description="share of groups that contain attackers (L_S)")
    client_share: float = Field(
        0.5, gt=0, le=1, description="share of attackers in these groups, of the clients with such classes (L)"
    )

    @model_validator(mode="after")
    def _check_attack(self) -> Self:
        if self.name == "none":
            for setting, field in type(self).model_fields.items():
                if getattr(self, setting) != field.default:
                    raise ValueError(f"{setting}: has no effect without an attack; set attack.name=label-flip")
            return self
        if bool(self.swap) == (self.swap_list is not None):
            raise ValueError("swap: label-flip needs either swap, such as [0, 6], or swap_list")
        if len(self.swap) % 2 or len(set(self.swap)) < len(self.swap):
            raise ValueError(f"swap: must be pairs of different classes, got {list(self.swap)}")
        return self


class EngineSettings(Section):
    """The engine that runs hops."""

    name: Literal["local", "ray", "flower"] = Field(
        "local", description="local: processes on this machine; ray: a Ray cluster; flower: nodes that keep their data"
    )
    workers: int = Field(0, ge=0, description="worker processes; 0 = one per core; results do not depend on it")
    address: str | None = Field(
        None,
        min_length=1,
        description="ray: HOST:PORT of the cluster's head, or auto; default: start a cluster on this machine",
    )
    lanes: int = Field(
        8,
        ge=1,
        le=1024,
        description="models trained as one batched model, if the model allows it; 1 = one at a time; "
        "another number may round differently",
    )
    superlink: str = Field("127.0.0.1:9092", description="flower: HOST:PORT of the SuperLink")
    folder: Path | None = Field(None, description="flower: folder of the server, created by `fedrelay certificates`")
    test: str | None = Field(
        None,
        description="flower: test samples at the server, a file or MODULE:FUNCTION; default: nodes evaluate",
    )
    wait: float = Field(60.0, ge=0, description="flower: seconds to wait for nodes or for the SuperLink")

    @field_validator("test", mode="before")
    @classmethod
    def _path_as_text(cls, test: object) -> object:
        return str(test) if isinstance(test, Path) else test

    @field_validator("superlink")
    @classmethod
    def _host_and_port(cls, superlink: str) -> str:
        found = re.fullmatch(r"[^\s:/@\[\]]+:(\d{1,5})", superlink)
        if found is None or not 1 <= int(found[1]) <= 65535:
            raise ValueError("must be HOST:PORT, such as relay.example.org:9092")
        return superlink

    @model_validator(mode="after")
    def _refuse_unused_settings(self) -> Self:
        """A setting that the chosen engine does not use is a mistake."""
        for setting, owners in _ENGINES_USING.items():
            if self.name not in owners and getattr(self, setting) != type(self).model_fields[setting].default:
                names = " and ".join(owners)
                raise ValueError(f"{setting}: has no effect with the {self.name} engine; only with {names}")
        return self


_ENGINES_USING = {
    "address": ("ray",),
    **dict.fromkeys(("workers", "lanes"), ("local", "ray")),
    **dict.fromkeys(("superlink", "folder", "test", "wait"), ("flower",)),
}
"""The engines that use a setting; nodes do one hop at a time."""


FaultKind = Literal[
    "dropout", "gone", "hang", "lost", "duplicated", "straggler",
    "nan", "inf", "shape", "zero", "explode", "sign-flip", "replace",
]  # fmt: skip


class GuardSettings(Section):
    """Checks before a client's model is handed on. If it is refused, the route continues with the model before it."""

    on_divergence: Literal["stop", "skip"] = Field(
        "stop", description="if a model has values that are not finite or too large: end the run, or refuse the model"
    )
    largest: float = Field(1e8, gt=0, description="largest allowed absolute value in a model")
    norm: float | None = Field(
        None,
        gt=0,
        description="maximum length of updates, in medians of the last round; longer ones are scaled down",
    )
    tolerance: float | None = Field(
        None, ge=0, description="refuse a model if its loss on the public set rose by this much more than usual"
    )
    largest_share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="largest share of one route in a merge that weights by samples; routes that claim more are capped",
    )

    @property
    def refuses(self) -> bool:
        """Whether a model may be refused."""
        return self.on_divergence == "skip" or self.tolerance is not None

    @property
    def needs_typical_hop(self) -> bool:
        """Whether hops are compared with those of the last round."""
        return self.norm is not None or self.tolerance is not None


class FaultSettings(Section):
    """A fault to simulate."""

    what: FaultKind = Field(description="the kind of fault")
    rate: float = Field(1.0, ge=0, le=1, description="probability at each hop; for `gone`, the share of clients")
    clients: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        None, description="clients that can fail; default: all"
    )
    first: int = Field(1, ge=1, description="the first round")
    last: int | None = Field(None, ge=1, description="the last round; default: the last of the run")
    factor: float | None = Field(
        None,
        gt=0,
        description="factor of time (straggler), model (explode) or update (sign-flip, replace); default 10",
    )

    @model_validator(mode="after")
    def _refuse_unused_settings(self) -> Self:
        scaled = ("straggler", "explode", "sign-flip", "replace")
        if self.factor is not None and self.what not in scaled:
            raise ValueError(f"factor: has no effect with {self.what!r}; only with {', '.join(scaled)}")
        if self.last is not None and self.what == "gone":
            raise ValueError("last: has no effect with 'gone', which never ends; use 'dropout'")
        if self.last is not None and self.last < self.first:
            raise ValueError(f"last: must not be before the first round ({self.first}), got {self.last}")
        if self.clients == ():
            raise ValueError("clients: must name at least one client")
        return self

    @property
    def strength(self) -> float:
        """The factor, or the usual one."""
        return 10.0 if self.factor is None else self.factor


class RecoverySettings(Section):
    """Reactions to a client that does not answer."""

    policy: Literal["skip", "retry", "later", "backup"] = Field(
        "skip",
        description="continue without the client, ask it again, ask it again at the end of the route, "
        "or ask a client that is not in this round",
    )
    retries: int = Field(1, ge=1, le=100, description="attempts of the policy before the client is skipped")
    timeout: float = Field(
        60.0,
        gt=0,
        description="seconds to wait for an answer; from nodes, for an answer or a sign that a hop makes progress",
    )
    deadline: float | None = Field(None, gt=0, description="seconds after which routes return early")
    min_arrivals: int = Field(
        1, ge=0, description="routes that must return with an accepted update, at most all; else the round is repeated"
    )
    repeats: int = Field(3, ge=0, le=1000, description="repetitions of a round before it is skipped")

    @model_validator(mode="after")
    def _refuse_unused_settings(self) -> Self:
        if self.policy == "skip" and self.retries != 1:
            raise ValueError("retries: has no effect with the policy 'skip'; only with retry, later and backup")
        return self


class TransferSettings(Section):
    """How models are encoded where they are sent."""

    codec: Literal["float32", "float16", "bfloat16", "int8", "top-k"] = Field(
        "float32",
        description="encoding of models: float32: as they are; float16, bfloat16, int8: rounded at random, with the "
        "same mean; top-k: clients send only the weights that changed most",
    )
    keep: float = Field(0.1, gt=0, le=1, description="top-k: share of the weights that are sent")
    error_feedback: bool = Field(
        True, description="top-k: clients keep the changes that they did not send, and add them to their next ones"
    )

    @model_validator(mode="after")
    def _refuse_unused_settings(self) -> Self:
        for setting in ("keep", "error_feedback"):
            if self.codec != "top-k" and getattr(self, setting) != type(self).model_fields[setting].default:
                raise ValueError(f"{setting}: has no effect with the codec {self.codec!r}; only with top-k")
        return self


class CheckpointSettings(Section):
    """How often a run is saved; results do not depend on it."""

    seconds: float = Field(5.0, ge=0, description="minimum seconds between two checkpoints; 0 = after every round")
