"""The settings of an experiment as keyword arguments, for type checkers and editors.

`spec` validates the values; a test keeps the names here equal to those of the spec.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from fedrelay.experiment.sections import Sampling, StepRule

Options = Mapping[str, Any]
Partition = Literal["iid", "dirichlet", "dirichlet-class", "shards", "natural", "quantity"]
Shift = Literal["none", "rotation", "inversion", "noise", "contrast"]
EngineName = Literal["local", "ray", "flower"]
ScheduleName = Literal["constant", "step", "cosine", "warmup"]
ChainScheduleName = Literal["constant", "linear", "cosine"]


class KeywordDataSettings(TypedDict, total=False):
    """Settings of `data` by their short names; `docs/settings.md` explains each."""

    path: str | Path | None
    beta: float
    shards_per_client: int
    shard_size: int | None
    min_samples: int
    samples: int | None
    test_samples: int | None
    shifts: Sequence[Shift]
    test_shifts: Sequence[Shift]
    public: int | None
    validation: float
    holdout: float
    table: Options


class KeywordSettings(KeywordDataSettings, total=False):
    """Settings that `run`, `compare` and `plan` accept besides their named arguments.

    Sections are mappings (`train={"clip": 1.0}`), other names are short names of one setting (`clip=1.0`).
    """

    train: Options
    transfer: Options
    eval: Options
    stop: Options
    checkpoint: Options
    guard: Options
    recovery: Options
    faults: Sequence[Options]
    withdrawn: Mapping[str, int]
    attack: str | Options
    warmup: Options
    route: Options
    grouping: Options
    terms: Options
    merge: Options
    server: Options
    sampling: Sampling | None
    clock: Options
    hidden: Sequence[int] | None
    stem: Literal["cifar", "imagenet"] | None
    steps: StepRule | int
    batches: Literal["shuffled", "class-weighted"]
    optimizer: str
    optimizer_options: Options
    optimizer_state: Literal["reset", "client", "payload"]
    schedule: ScheduleName | str | Options
    chain_schedule: ChainScheduleName | Options
    momentum: float
    weight_decay: float
    clip: float | None
    precision: Literal["float32", "bf16"]
    device: str
    codec: Literal["float32", "float16", "bfloat16", "int8", "top-k"]
    keep: float
    error_feedback: bool
    every: int
    subset: int | None
    metric: str
    last: int
    forgetting: int
    targets: Sequence[float]
    reference: float | None
    classes: Sequence[int]
    per_client: int
    fine_tune: int
    patience: int | None
    min_gain: float
    target: float | None
    max_bytes: int | None
    max_updates: int | None
    max_hours: float | None
    max_wall: float | None
    address: str | None
    lanes: int
    superlink: str
    folder: str | Path | None
    test: str | Path | None
    wait: float
    seconds: float
    on_divergence: Literal["stop", "skip"]
    largest: float
    norm: float | None
    tolerance: float | None
    largest_share: float | None
    policy: Literal["skip", "retry", "later", "backup"]
    retries: int
    timeout: float
    deadline: float | None
    min_arrivals: int
    repeats: int
    swap: Sequence[int]
    swap_list: Literal["extra-sc", "intra-sc"] | None
    pairing: Literal["fixed", "random"]
    group_share: float
    client_share: float
