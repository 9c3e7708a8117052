"""Four methods on six learning tasks, on one worker, two workers, Ray and real nodes: the same weights on each of them.

    .venv/bin/python benchmarks/tasks.py                  print the table
    .venv/bin/python benchmarks/tasks.py --rounds 20      train longer
    .venv/bin/python benchmarks/tasks.py --task volumes   one of the tasks
    .venv/bin/python benchmarks/tasks.py --smoke          one method, one round, without Ray, nodes and LoRA

The tasks are a binary diagnosis (tables of four hospitals with missing values), a regression, a segmentation (`shapes`
with the U-Net), a language model with LoRA adapters, a diagnosis from volumes, and a classification whose samples are
read from files. Nodes are processes of their own, one for each client, with a SuperLink on the loopback address; each
has only its client's files.

The command fails if a simulation ends with other bits, or nodes with weights that differ by more than 1e-6, and its
last line names the engines that ran. What is not installed is left out: Ray, Flower, or transformers and peft.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import logging
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from loopback_nodes import loopback_nodes
from torch import Tensor, nn
from torch.utils.data import Dataset

import fedrelay as fr
from fedrelay.data.loaders import heart_disease

METHODS: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {},
    "fedseq": {},
    "spfl": {},
    "fedgsp": {"route.beta": 2, "route.alpha": 2.0},  # two groups of two, then single clients; the default is one group
}
SIMULATIONS: Mapping[str, Mapping[str, Any]] = {
    "local, 1 worker": {"engine": "local", "workers": 1},
    "local, 2 workers": {"engine": "local", "workers": 2},
    "ray": {"engine": "ray", "workers": 2},
}
NODES = "nodes"
CLIENTS = 4
NAMES = tuple(f"client-{number}" for number in range(CLIENTS))
TEST = "test"
"""Each client has a folder of this name, and so have the test samples."""

CATEGORICAL = heart_disease.CATEGORICAL
MOST = 1e-6
"""Weights at nodes may differ by this much from those of a simulation, which trains small models side by side."""


@dataclass(frozen=True)
class LearningTask:
    """A task: its data, made in a folder, and the settings of its runs."""

    name: str
    data: Callable[[Path], fr.Federation]
    """Writes what each client has into its folder, and returns all of it."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    served: str = "samples.npz"
    """What a node serves, and what the server tests with: a file in the folder, or MODULE:FUNCTION."""

    node_options: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    """Optional packages that it needs; importing them takes longer than a smoke run."""


def in_files(federation: fr.Federation, folder: Path) -> fr.Federation:
    """Write the samples of every client into its folder."""
    clients = {name: federation.train_samples(number) for number, name in enumerate(NAMES)}
    for name, source in {**clients, TEST: federation.test}.items():
        samples = source.load()
        (folder / name).mkdir()
        np.savez(folder / name / "samples.npz", x=samples.single_input.numpy(), y=samples.y.numpy())
    return federation


def hospitals(folder: Path) -> fr.Federation:
    """Patients of four hospitals, each with a table of its own. Every fifth patient is for testing."""
    rows: dict[str, list[dict[str, str]]] = {TEST: []}
    for name, hospital in zip(NAMES, heart_disease.FILES, strict=True):
        with (heart_disease.package_folder()[0] / hospital).open(newline="") as file:
            patients = list(csv.DictReader(file))
        for patient in patients:
            patient["ill"] = "yes" if int(patient.pop("num")) else "no"
        rows[name] = [patient for number, patient in enumerate(patients) if number % 5]
        rows[TEST] += patients[::5]
    for name, patients in rows.items():
        (folder / name).mkdir()
        write_table(folder / name / "rows.csv", patients)
    write_table(folder / "all.csv", [{**row, "hospital": name} for name in NAMES for row in rows[name]])
    return fr.federate_table(
        folder / "all.csv", target="ill", client="hospital", categorical=CATEGORICAL, test=folder / TEST / "rows.csv"
    )


def write_table(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def regression(folder: Path) -> fr.Federation:
    """A noisy linear function of ten features."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(360, 10)).astype(np.float32)
    y = x @ rng.normal(size=10) / 3 + 0.1 * rng.normal(size=360)
    return in_files(fr.federate(x[:300], y[:300], x[300:], y[300:], clients=CLIENTS, partition="iid"), folder)


def shapes(folder: Path) -> fr.Federation:
    return in_files(fr.load_data("shapes", clients=CLIENTS), folder)


def volumes(folder: Path) -> fr.Federation:
    """Noise, in half of the volumes with a bright cube at a random place; each client has its own brightness."""
    rng = np.random.default_rng(1)
    owner, ill = np.arange(150) % CLIENTS, rng.integers(0, 2, 150)
    x = (rng.normal(size=(150, 1, 8, 8, 8)) + 0.1 * owner[:, None, None, None, None]).astype(np.float32)
    for number, (a, b, c) in zip(np.flatnonzero(ill), rng.integers(0, 5, (int(ill.sum()), 3)), strict=True):
        x[number, 0, a : a + 4, b : b + 4, c : c + 4] += 2.0
    train, test = slice(120), slice(120, None)
    return in_files(fr.federate(x[train], ill[train], x[test], ill[test], client_ids=owner[train]), folder)


class RowsOnDisk(Dataset[tuple[Tensor, int]]):
    """Rows of one client's file. The file is opened for each sample, so nothing of it stays in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.targets = np.load(path)[:, -1].astype(np.int64)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        values = np.array(np.load(self.path, mmap_mode="r")[row, :-1])
        return torch.from_numpy(values), int(self.targets[row])


def on_disk(folder: Path) -> fr.Federation:
    """Three classes around centres of their own, one file for each client and one for testing."""
    rng = np.random.default_rng(2)
    centres = rng.normal(size=(3, 8))
    for name in (*NAMES, TEST):
        labels = rng.integers(0, 3, 40)
        (folder / name).mkdir()
        rows = np.column_stack([centres[labels] + rng.normal(size=(40, 8)), labels])
        np.save(folder / name / "rows.npy", rows.astype(np.float32))
    *train, test = (RowsOnDisk(folder / name / "rows.npy") for name in (*NAMES, TEST))
    return fr.federate_datasets(train, test, name="on-disk")


def rows_here() -> RowsOnDisk:
    """What a node serves that runs in the folder of its client."""
    return RowsOnDisk(Path("rows.npy"))


TOKENS, LENGTH = 12, 16


class Texts(Dataset[tuple[dict[str, Tensor], Tensor]]):
    """Rows of tokens in a file. A model reads all but the last, and predicts the next one at every position."""

    def __init__(self, path: Path) -> None:
        self.rows = torch.from_numpy(np.load(path))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> tuple[dict[str, Tensor], Tensor]:
        tokens = self.rows[row]
        return {"input_ids": tokens[:-1], "attention_mask": torch.ones(LENGTH, dtype=torch.int64)}, tokens[1:]


def texts(folder: Path) -> fr.Federation:
    """Texts that count in steps, of another size at each client."""
    rng = np.random.default_rng(3)
    steps = {name: (number + 1,) for number, name in enumerate(NAMES)}
    for name, own in {**steps, TEST: tuple(range(1, CLIENTS + 1))}.items():
        (folder / name).mkdir()
        first, step = rng.integers(0, TOKENS, (24, 1)), rng.choice(own, (24, 1))
        np.save(folder / name / "texts.npy", (first + step * np.arange(LENGTH + 1)) % TOKENS)
    *train, test = (Texts(folder / name / "texts.npy") for name in (*NAMES, TEST))
    return fr.federate_datasets(train, test, classes=TOKENS, task="language-model", name="texts")


def texts_here() -> Texts:
    """What a node serves that runs in the folder of its client."""
    return Texts(Path("texts.npy"))


def gpt2_with_adapters() -> nn.Module:
    """A GPT-2 of one layer whose weights are frozen, with LoRA adapters, which are trained."""
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    ends = {"bos_token_id": 0, "eos_token_id": 0}
    size = GPT2Config(vocab_size=TOKENS, n_positions=LENGTH, n_embd=32, n_layer=1, n_head=2, use_cache=False, **ends)
    return get_peft_model(GPT2LMHeadModel(size), LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True))


TABLE = ("--target", "ill", *(word for name in CATEGORICAL for word in ("--categorical", name)), "--min-rows", "1")
LORA = ("--model", "tasks:gpt2_with_adapters", "--classes", str(TOKENS))
ADAM = {"task": "language-model", "optimizer": "adam", "lr": 0.01, "batch_size": 8}
TASKS = (
    LearningTask("heart disease", hospitals, {}, "rows.csv", TABLE),
    LearningTask("regression", regression),
    LearningTask("shapes, U-Net", shapes, {"model": "unet"}),
    LearningTask(
        "texts, LoRA", texts, {"model": gpt2_with_adapters, **ADAM}, "tasks:texts_here", LORA, ("transformers", "peft")
    ),
    LearningTask("volumes", volumes, {"model": "cnn-3d", "batch_size": 4, "task": "binary"}),
    LearningTask("dataset on disk", on_disk, {}, "tasks:rows_here"),
)


def installed(*packages: str) -> bool:
    return all(importlib.util.find_spec(package) is not None for package in packages)


def engines(*, only_local: bool) -> list[str]:
    """The engines that are there."""
    local = [name for name in SIMULATIONS if name != "ray"]
    if only_local:
        return local
    return local + ["ray"] * installed("ray") + [NODES] * installed("flwr")


def runs(
    task: LearningTask, methods: Sequence[str], rounds: int, wanted: Sequence[str]
) -> Iterator[tuple[str, str, fr.Result]]:
    """(method, engine, result): every method on each engine. Nodes serve the task as long as its methods run."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        data = task.data(folder)
        settings = {engine: {"data": data, **SIMULATIONS[engine]} for engine in wanted if engine != NODES}
        if NODES in wanted:
            options = ("--data", task.served, *task.node_options, "--share-histogram")
            clients = {name: folder / name for name in NAMES}
            found = stack.enter_context(loopback_nodes(folder, clients, options, task.served))
            settings[NODES] = {"data": task.name, "engine": found.engine}
        for method in methods:
            for engine, own in settings.items():
                common = {**METHODS[method], **task.settings, "rounds": rounds, "fraction": 1.0, "seed": 1}
                # A server finds its test samples in the folder where it runs.
                with chdir(folder / TEST) if engine == NODES else nullcontext():
                    result = fr.run(method, **common, **own)
                yield method, engine, result


def print_row(*cells: str) -> None:
    widths = (16, 8, 17, 18, 13)
    print("  ".join(f"{cell:{width}}" for cell, width in zip(cells, (*widths, 0), strict=True)).rstrip(), flush=True)


def fits(engine: str, found: fr.Result, reference: fr.Result) -> bool:
    """Whether an engine ended with the weights of the first one."""
    if engine == NODES:
        return difference(found, reference) <= MOST
    return found.weights_sha256 == reference.weights_sha256


def difference(found: fr.Result, reference: fr.Result) -> float:
    return float((found.weights - reference.weights).abs().max())


def verdict(differing: Sequence[str], compared: Iterable[str]) -> str:
    """What was found, and on which engines."""
    found = f"other weights on some engine for {', '.join(differing)}" if differing else "the same weights"
    return f"{found} (compared: {'; '.join(compared)})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each run")
    parser.add_argument("--task", choices=[task.name for task in TASKS], help="only this task")
    parser.add_argument("--smoke", action="store_true", help="one method, one round, without Ray, nodes and LoRA")
    options = parser.parse_args()
    methods, rounds = (["fedavg"], 1) if options.smoke else ([*METHODS], options.rounds)
    wanted = engines(only_local=options.smoke)
    logging.getLogger("fedrelay").setLevel(logging.ERROR)  # data without classes have random groups, as documented
    print_row("task", "method", "engine", "score", "weights", "largest difference")
    differing = []
    left_out = [task for task in TASKS if task.packages and (options.smoke or not installed(*task.packages))]
    for task in TASKS:
        if task in left_out or options.task not in (None, task.name):
            continue
        references: dict[str, fr.Result] = {}
        for method, engine, found in runs(task, methods, rounds, wanted):
            reference = references.setdefault(method, found)
            score, away = f"{found.metric} {found.score:.4f}", f"{difference(found, reference):.1e}"
            print_row(task.name, method, engine, score, found.weights_sha256[:12], away)
            differing += [] if fits(engine, found, reference) else [f"{method} on {task.name} ({engine})"]
    print(verdict(differing, wanted))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
