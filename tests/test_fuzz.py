"""Mutated specs and damaged files by the thousand: a clear error or success, soon, and nothing written elsewhere.

Seeded, so a failure repeats; its message has the seed of the case.
"""

from __future__ import annotations

import contextlib
import copy
import gzip
import io
import json
import math
import os
import random
import shutil
import signal
import string
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.conftest import make_federation
from torch import nn

import fedrelay as fr
from fedrelay.comparison import load_comparison
from fedrelay.data.registry import load_dataset
from fedrelay.errors import FedRelayError
from fedrelay.metrics.privacy import Accountant
from fedrelay.models.layout import TORCH_GLOBALS
from fedrelay.recipes import CATALOGUE, experiments, recipe
from fedrelay.setting import rehearse
from fedrelay.spec import SECTIONS, Comparison, Experiment, load_file, parse_assignment, validate

EXAMPLES = Path(__file__).parent.parent / "examples"
SECONDS = 10
"""No single case may take longer; most take a millisecond, but the machine may be busy."""

ODD = (
    None, True, False, 0, -1, 1, 2, 3.5, -0.0, 1e-320, 1e308, math.inf, -math.inf, math.nan, 10**25, -(10**25), 2**63,
    "", " ", "0", "nan", "none", "auto", "../../etc/passwd", "/dev/zero", "a" * 3000, "\x00", "\ud800", "é∞𝔉", "{}",
    "%s", [], [[]], [None], [0, 1], [3, 3], ["x"] * 50, {}, {"name": None}, {"": 1}, {"a": {"b": {"c": []}}},
    {"name": "digits"}, {1: 2}, (), "fedseq+", "+", "fedavg+fedavg", "random", "recv",
)  # fmt: skip


@contextlib.contextmanager
def judged(case: str):
    """Only a `FedRelayError` with one clear message may come out, and in time."""

    def late(signum: int, frame: object) -> None:
        raise AssertionError(f"{case}: took longer than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    except FedRelayError as error:
        if not 0 < len(str(error).strip()) < 20_000:
            raise AssertionError(f"{case}: an error without a message, or with an endless one") from error
    except Exception as error:
        raise AssertionError(f"{case}: {type(error).__name__}: {error}") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def refused(case: str):
    """The same, and something must come out."""
    with judged(case):
        yield
        raise AssertionError("was accepted")


# ---- specs ----


def whole_tree() -> dict:
    """An experiment with every setting said."""
    tree = validate(Experiment, {"method": "fedseq"}).model_dump(mode="json", exclude={"out"})
    tree["data"] |= {"clients": 10}
    return tree


def seeds_of_trees() -> list[dict]:
    found = [load_file(path) for path in sorted(EXAMPLES.glob("*.yaml"))]
    options = {
        "wfsl+fedprox": {"warmup": {"cycles": 2, "select": {}}, "terms": {"prox": {"mu": 0.1, "anchor": "round"}}},
        "fedgsp+glam": {"route": {"growth": "exp", "alpha": 1.5}, "grouping": {"groups": 3, "profile": "counts"}},
        "fedseq+dp": {"terms": {"dp": {"clip": 1, "noise": 1, "epsilon": 9.0}}, "clock": {}},
        "fedasyncseq+scaffold+krum": {"route": {}, "merge": {}, "attack": {"name": "label-flip", "swap": [0, 1]}},
    }
    found += [{"method": method, "data": {"clients": 10}, **more} for method, more in options.items()]
    return [*found, whole_tree()]


def places(tree: object) -> list[tuple]:
    """Every (container, key) inside a tree."""
    below = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [found for key, value in below for found in ((tree, key), *places(value))]


def mutated(tree: dict, rng: random.Random) -> dict:
    """A tree with one to four things changed in it."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.randint(1, 4)):
        found = places(tree)
        container, key = rng.choice(found) if found else (tree, "method")
        match rng.randrange(8):
            case 0:
                del container[key]
            case 1 if isinstance(container, dict) and isinstance(key, str):
                container[key + rng.choice("sx_")] = container[key]
            case 2:
                tree[rng.choice([*SECTIONS, "terms", "route", "grouping", "merge", "warmup", "clock"])] = rng.choice(
                    ODD
                )
            case 3:
                names = rng.choices(list(CATALOGUE), k=rng.randint(1, 4))
                tree["method" if "method" in tree else "methods"] = "+".join(names) if "method" in tree else names
            case 4:
                other, there = rng.choice(found) if found else (tree, "method")
                container[key] = copy.deepcopy(other[there]) if there in other or isinstance(other, list) else None
            case _:
                container[key] = copy.deepcopy(rng.choice(ODD))
    return tree


def understood(tree: dict) -> Experiment | Comparison:
    """As far as a spec gets without data: validation, and the recipe of every run."""
    kind = Comparison if "methods" in tree else Experiment
    spec = validate(kind, tree)
    for experiment in [spec] if isinstance(spec, Experiment) else [each for _, each in experiments(spec)]:
        recipe(experiment)
    return spec


def test_ten_thousand_mutated_specs():
    trees, succeeded = seeds_of_trees(), 0
    for seed in range(10_000):
        rng = random.Random(seed)
        tree = mutated(rng.choice(trees), rng)
        with judged(f"seed {seed}"):
            understood(tree)
            succeeded += 1
    assert 300 < succeeded < 9_000  # neither everything nor nothing is refused


def test_mutated_specs_made_concrete():
    trees = [tree for tree in seeds_of_trees() if "method" in tree]
    Accountant(1.0, 1e-5).epsilon(1)  # loads a package that takes seconds, once
    federation, succeeded = make_federation([5, 9, 3, 8, 4, 7]), 0
    with TORCH_GLOBALS:
        module = nn.Linear(4, 3)
    for seed in range(1_500):
        rng = random.Random(f"outline {seed}")
        tree = mutated(rng.choice(trees), rng)
        with judged(f"seed {seed}"):
            rehearse(validate(Experiment, tree), federation=federation, module=module)
            succeeded += 1
    assert succeeded > 30


def test_mutated_text(tmp_path):
    texts = [path.read_bytes() for path in sorted(EXAMPLES.glob("*.yaml"))]
    texts += [yaml.safe_dump(tree).encode() for tree in seeds_of_trees()]
    scraps = [
        b"&a ",
        b"*a",
        b"<<: ",
        b"!!python/object:os.system ",
        b"!!binary ",
        b"? ",
        b"{",
        b"[",
        b"- ",
        b"|\n",
        b"\t",
    ]
    scraps += [
        b"9" * 5000,
        b"2020-99-99",
        b"0x",
        b"1:60:99",
        b"~",
        b"'",
        b'"',
        b"%YAML 9.9\n---\n",
        b"---\n",
        b"\xff",
        b"#",
    ]
    path = tmp_path / "spec.yaml"
    for seed in range(1_500):
        rng = random.Random(f"text {seed}")
        text = bytearray(rng.choice(texts))
        for _ in range(rng.randint(1, 5)):
            at = rng.randrange(len(text) + 1)
            text[at : at + rng.choice((0, 0, 1, 9))] = rng.choice((*scraps, bytes([rng.randrange(256)])))
        path.write_bytes(text)
        with judged(f"seed {seed}"):
            understood(load_file(path))
        with judged(f"assignment {seed}"):
            parse_assignment(text.decode("utf-8", "replace"))


def laughs(kind: str) -> str:
    """A few lines that stand for 10⁹ values."""
    lines = [f"a0: &a0 {kind}"]
    for level in range(1, 10):
        inside = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} [{inside}]" if kind == "[x]" else f"a{level}: &a{level} {{k: [{inside}]}}")
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        "method: fedavg\nterms:\n  " + laughs("[x]").replace("\n", "\n  "),
        "method: fedavg\n" + laughs("{k: 1}"),
        "method: fedavg\nterms: &a [*a]\n",
        "method: &a {b: *a}\n",
        "method: " + "[" * 10_000,
        "method: fedavg\nrounds: " + "9" * 10_000,
        "method: fedavg\n? [a, b]\n: 1\n",
        "method: fedavg\n? {a: b}\n: 1\n",
        "method: fedavg\nrounds: 2020-13-45\n",
        "method: fedavg\n" + "x: 1\n" * 3_000_000,
    ],
    ids=range(10),
)
def test_texts_that_are_small_but_mean_much(text, tmp_path):
    path = tmp_path / "bomb.yaml"
    path.write_text(text)
    with refused("bomb"):
        understood(load_file(path))


# ---- run folders ----


@pytest.fixture(scope="module")
def parties():
    """Data and model of a small run."""
    with TORCH_GLOBALS:
        return make_federation([5, 9, 3, 8, 4, 7]), nn.Linear(4, 3)


@pytest.fixture(scope="module")
def runs(tmp_path_factory, parties):
    """A complete run and one that was interrupted, with groups, slots, what clients keep and privacy between them."""

    class Die:
        def started(self, experiment, round):
            pass

        def round_done(self, round, row):
            if round == 2:
                raise ZeroDivisionError

    folder, (data, model) = tmp_path_factory.mktemp("runs"), parties
    settings = {"data": data, "model": model, "rounds": 3, "fraction": 1.0, "workers": 1, "checkpoint": {"seconds": 0}}
    settings["grouping"] = {"max_clients": 2}
    fr.run("fedseq+dp", **settings, out=folder / "complete", attack={"name": "label-flip", "swap": [0, 1]})
    with pytest.raises(ZeroDivisionError):
        fr.run("fedseqinter+scaffold", **settings, out=folder / "broken", observer=Die())
    return folder


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Bytes that were cut, flipped, repeated, replaced, or JSON in which one value is another."""
    content = bytearray(content)
    match rng.randrange(6):
        case 0:
            del content[rng.randrange(len(content) + 1) :]
        case 1:
            for _ in range(rng.randint(1, 4)):
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        case 2:
            at = rng.randrange(len(content))
            content[at:at] = rng.randbytes(rng.randint(1, 40))
        case 3:
            at = rng.randrange(len(content))
            content += content[at:]
        case 4:
            return rng.choice((b"", b"{}", b"[]", b"null", b"0\n", b"[" * 99_999, b"\xff" * 64, b"{}\n" * 9, b'"' * 7))
        case _:
            return other_values(bytes(content), rng)
    return bytes(content)


def other_values(content: bytes, rng: random.Random) -> bytes:
    """JSON lines with one value replaced; other files get another size in their first eight bytes."""
    try:
        rows = [json.loads(line) for line in content.decode().splitlines()]
        found = places(rows)
        for _ in range(rng.randint(1, 2)):
            container, key = rng.choice(found)
            container[key] = copy.deepcopy(rng.choice([odd for odd in ODD if odd != {1: 2} and odd != ()]))
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    except (ValueError, UnicodeError, IndexError):
        return rng.choice((2**63, 2**40, 0, len(content))).to_bytes(8, "little") + content[8:]


def snapshot(folder: Path) -> list[tuple]:
    return sorted((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*"))


def test_damaged_run_folders(runs, parties, tmp_path, monkeypatch):
    """Bytes, links and missing files; what lies beside the run stays as it is."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # nobody will pull the plug
    data, model = parties
    beside, run = tmp_path / "beside", tmp_path / "run"
    beside.mkdir()
    (beside / "precious-1-0123456789abcdef.safetensors").write_text("mine")
    (beside / "metrics.jsonl").write_text('{"round": 1, "accuracy": 0.5}\n')
    before, resumed = snapshot(beside), 0
    for seed in range(800):
        rng = random.Random(f"folder {seed}")
        source = runs / rng.choice(("complete", "broken"))
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(source, run)
        file = rng.choice(sorted(path for path in run.rglob("*") if path.is_file() and path.name != ".lock"))
        match rng.randrange(12):
            case 0:
                file.unlink()
            case 1:
                file.unlink()
                file.symlink_to(beside / rng.choice(("metrics.jsonl", "none", ".")))
            case 2:
                file.unlink()
                file.mkdir()
            case 3:
                kept = run / "clients"
                shutil.rmtree(kept, ignore_errors=True)
                kept.symlink_to(beside)
            case 4:
                other = rng.choice(sorted(path for path in run.rglob("*") if path.is_file()))
                file.write_bytes(other.read_bytes())
            case _:
                file.write_bytes(damaged(file.read_bytes(), rng))
        with judged(f"seed {seed}, {file.name}"):
            fr.resume(run, data=data, model=model)
            resumed += 1
        assert snapshot(beside) == before, f"seed {seed}: something was written outside"
    assert resumed > 50


def test_names_in_checkpoints_cannot_lead_out(runs, parties, tmp_path):
    data, model = parties
    victim = tmp_path / "victim.safetensors"
    for key, value in (
        ("file", "../victim.safetensors"),
        ("clients", ["../victim.safetensors"]),
        ("file", "/dev/zero"),
    ):
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(runs / "broken", run)
        victim.write_bytes(
            (run / "round-2.safetensors").read_bytes() if (run / "round-2.safetensors").exists() else b"x"
        )
        pointer = json.loads((run / "checkpoint.json").read_text())
        (run / "checkpoint.json").write_text(json.dumps({**pointer, key: value}))
        with refused(str(value)):
            fr.resume(run, data=data, model=model)
        assert victim.exists()


def test_nothing_waits_for_a_pipe_or_an_endless_device(runs, parties, tmp_path):
    data, model = parties
    for name in sorted(path.name for path in (runs / "broken").iterdir() if path.is_file() and path.name != ".lock"):
        for kind in ("pipe", "device"):
            run = tmp_path / "run"
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(runs / "broken", run)
            (run / name).unlink()
            if kind == "pipe":
                os.mkfifo(run / name)
            else:
                (run / name).symlink_to("/dev/zero")
            with judged(f"{name} as a {kind}"):
                fr.resume(run, data=data, model=model)


def test_damaged_comparisons(tmp_path):
    path = tmp_path / "comparison.yaml"
    spec = validate(Comparison, load_file(EXAMPLES / "digits.yaml")).model_dump(mode="json", exclude={"out"})
    text = yaml.safe_dump(spec).encode()
    for seed in range(300):
        path.write_bytes(damaged(text, random.Random(f"comparison {seed}")))
        with judged(f"seed {seed}"):
            load_comparison(tmp_path)


# ---- data ----


def zipped(members: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def npy(array: np.ndarray, header: str | None = None) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    content = buffer.getvalue()
    if header is None:
        return content
    text = header.encode().ljust(117) + b"\n"
    return content[:8] + len(text).to_bytes(2, "little") + text + content[128:]


ARRAYS = {
    "x_train.npy": npy(np.arange(12.0).reshape(4, 3)),
    "y_train.npy": npy(np.array([0, 1, 2, 0])),
    "x_test.npy": npy(np.arange(12.0).reshape(4, 3)),
    "y_test.npy": npy(np.array([1, 1, 0, 0])),
}

HEADERS = (
    "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 3), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (4, 3), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-4, 3), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (4, 3.0), }",
    "{'descr': '<U999999999', 'fortran_order': False, 'shape': (4, 3), }",
    "{'descr': [('a', '<f8'), ('b', 'O')], 'fortran_order': False, 'shape': (4,), }",
    "{'descr': __import__('os'), 'fortran_order': False, 'shape': (4, 3), }",
    "{'descr': '<f8', 'shape': (" + "1," * 40 + ")}",
    "{" * 60,
)


def test_damaged_archives(tmp_path):
    path = tmp_path / "mine.npz"
    for seed in range(700):
        rng = random.Random(f"npz {seed}")
        members, name = dict(ARRAYS), rng.choice(list(ARRAYS))
        match rng.randrange(5):
            case 0:
                members[name] = npy(np.zeros((4, 3)), rng.choice(HEADERS))
            case 1:
                members[name] = damaged(members[name], rng)
            case 2:
                members[rng.choice(("../../escape.npy", "/abs.npy", "x_train.npy/", "C:\\x.npy"))] = members.pop(name)
            case 3:
                kinds = (
                    np.array(["x"]),
                    np.zeros((4, 3, 2, 2, 2)),
                    np.array(7),
                    np.full((4, 3), np.nan),
                    np.zeros((0, 3)),
                )
                members[name] = npy(rng.choice(kinds))
            case _:
                pass
        content = zipped(members, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)))
        path.write_bytes(damaged(content, rng) if rng.random() < 0.5 else content)
        with judged(f"seed {seed}"):
            load_dataset("npz", path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mine.npz"]


def test_damaged_texts_and_tables(tmp_path):
    row = b"0,tcp,http,SF," + b"0.5," * 37 + b"normal,20\n"
    leaf = json.dumps({"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": ["b" * 80], "y": ["c"]}}}).encode()
    sets = {
        "nsl-kdd": {"KDDTrain+.txt": row * 2, "KDDTest+.txt.gz": gzip.compress(row, mtime=0)},
        "shakespeare": {"train/a.json": leaf + b"\n", "test/a.json": leaf + b"\n"},
    }
    for seed in range(600):
        rng = random.Random(f"text {seed}")
        name = rng.choice(list(sets))
        folder = tmp_path / name
        file = rng.choice(list(sets[name]))
        for each, content in sets[name].items():
            (folder / each).parent.mkdir(parents=True, exist_ok=True)
            (folder / each).write_bytes(damaged(content, rng) if each == file else content)
        with judged(f"seed {seed}, {file}"):
            load_dataset(name, folder)


def test_names_of_data_lead_nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    odd = (
        "",
        ".",
        "..",
        "/",
        "~",
        "\x00",
        "a\nb",
        "../../etc/passwd",
        "digits\x00",
        "/dev/zero",
        "/dev/zero.npz",
        "x.npz",
    )
    letters = string.printable
    names = [*odd, *("".join(random.Random(seed).choices(letters, k=seed % 40)) for seed in range(200))]
    for name in names:
        with judged(repr(name)):
            load_dataset(name, None)
        with judged(repr(name)):
            load_dataset("npz", Path(name))
    assert not list(tmp_path.iterdir())
