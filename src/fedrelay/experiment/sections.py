"""The sections of an experiment: data, model, training and the rest, each frozen and checked by itself."""

from __future__ import annotations

import re
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


class DataSettings(Section):
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


class ModelSettings(Section):
    """Which network is trained."""

    name: str | None = Field(
        None, description="a model of the zoo, or MODULE:FUNCTION of your own; default: a small one that fits the data"
    )
    hidden: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(None, description="mlp: widths of the hidden layers")
    stem: Literal["cifar", "imagenet"] | None = Field(
        None, description="resnet18: first layer for small or large images"
    )


class TrainSettings(Section):
    """One local pass, the same at every client."""

    epochs: int = Field(1, ge=1, description="passes over the client's samples at each visit")
    batch_size: int = Field(16, ge=1, description="samples per step")
    lr: float = Field(0.05, gt=0, description="step size")
    lr_decay: float = Field(1.0, gt=0, le=1, description="what the step size is multiplied by after every round")
    momentum: float = Field(0.0, ge=0, lt=1, description="momentum, reset at every visit")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty inside the step")
    clip: float | None = Field(None, gt=0, description="bound on the norm of each gradient")
    device: str = Field("cpu", description="where training runs: cpu, cuda, cuda:1, mps")

    def at(self, round: int) -> Self:
        """The same with the step size of a round, for which nothing decays any more."""
        if self.lr_decay == 1:
            return self
        shrunk = self.lr * self.lr_decay ** max(0, round - 1)  # profiles are taken before the first round
        return self.model_copy(update={"lr": shrunk, "lr_decay": 1.0})


class EvalSettings(Section):
    """When and against what the global model is judged."""

    every: int = Field(1, ge=1, description="evaluate after every so many rounds, and after the last")
    last: int = Field(10, ge=1, description="evaluations averaged into accuracy_last")
    forgetting: int = Field(
        0, ge=0, description="after every so many rounds, follow one chain: what it forgets of its clients; 0 = never"
    )
    targets: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field(
        (0.7, 0.8, 0.9), min_length=1, description="shares of the reference accuracy for rounds-to-target"
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


class AttackSettings(Section):
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


class EngineSettings(Section):
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
    superlink: str = Field("127.0.0.1:9092", description="flower: the SuperLink's HOST:PORT")
    folder: Path | None = Field(None, description="flower: the server's folder, made by `fedrelay certificates`")
    test: Path | None = Field(None, description="flower: the server's own test samples; default: nodes judge models")
    wait: float = Field(60.0, ge=0, description="flower: seconds to wait for nodes or a SuperLink that are away")

    @field_validator("superlink")
    @classmethod
    def _host_and_port(cls, superlink: str) -> str:
        found = re.fullmatch(r"[^\s:/@\[\]]+:(\d{1,5})", superlink)
        if found is None or not 1 <= int(found[1]) <= 65535:
            raise ValueError("must be HOST:PORT, such as relay.example.org:9092")
        return superlink

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        """A setting that the chosen engine does not use is a mistake."""
        for setting, owners in _OWNERS.items():
            if self.name not in owners and getattr(self, setting) != type(self).model_fields[setting].default:
                belongs = " and ".join(owners)
                raise ValueError(f"{setting}: has no effect with the {self.name} engine; it belongs to {belongs}")
        return self


_OWNERS = {
    "address": ("ray",),
    **dict.fromkeys(("workers", "lanes"), ("local", "ray")),
    **dict.fromkeys(("superlink", "folder", "test", "wait"), ("flower",)),
}
"""The engines that look at a setting; nodes do one turn at a time."""


FaultKind = Literal[
    "dropout", "gone", "hang", "lost", "duplicated", "straggler",
    "nan", "inf", "shape", "zero", "explode", "sign-flip", "replace",
]  # fmt: skip


class GuardSettings(Section):
    """What is checked before a client's model is handed on; after one that is refused the model before it goes on."""

    on_divergence: Literal["stop", "skip"] = Field(
        "stop", description="a model with values that are not finite or too large: end the run, or leave it out"
    )
    largest: float = Field(1e8, gt=0, description="a model with a value beyond it has diverged")
    norm: float | None = Field(
        None, gt=0, description="shorten updates to so many times the usual length, the median of the last round"
    )
    tolerance: float | None = Field(
        None, ge=0, description="leave out a model whose loss on the public set rose by so much more than is usual"
    )

    @property
    def refuses(self) -> bool:
        """Whether a model may be left out."""
        return self.on_divergence == "skip" or self.tolerance is not None

    @property
    def asks_what_is_usual(self) -> bool:
        """Whether turns are held against those before."""
        return self.norm is not None or self.tolerance is not None


class FaultSettings(Section):
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


class RecoverySettings(Section):
    """What is done when a client does not answer."""

    policy: Literal["skip", "retry", "later", "backup"] = Field(
        "skip",
        description="go on without the client, ask it again, ask it again at the end of the route, "
        "or ask a client that is not in the round",
    )
    retries: int = Field(1, ge=1, le=100, description="how often the policy is tried before the client is skipped")
    timeout: float = Field(60.0, gt=0, description="seconds after which a client that does not answer is given up")
    deadline: float | None = Field(None, gt=0, description="seconds after which routes come home, however far they are")
    min_arrivals: int = Field(
        1, ge=0, description="routes that must come home with something, at most all there are; else the round repeats"
    )
    repeats: int = Field(3, ge=0, le=1000, description="how often a round repeats before it is given up")

    @model_validator(mode="after")
    def _everything_has_an_effect(self) -> Self:
        if self.policy == "skip" and self.retries != 1:
            raise ValueError("retries: has no effect with the policy 'skip'; it belongs to retry, later and backup")
        return self


class CheckpointSettings(Section):
    """How often a run can be picked up again; results do not depend on it."""

    seconds: float = Field(5.0, ge=0, description="least time between two checkpoints; 0 = after every round")
