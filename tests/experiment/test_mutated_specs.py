"""Mutated specs by the thousand: a clear error or success, soon."""

from __future__ import annotations

import copy
import random
from collections import Counter
from pathlib import Path

import pytest
import yaml
from tests.conftest import make_federation
from tests.damage import FAIR, ODD, cases, damaged, places, verdict
from torch import nn

from fedrelay.experiment.comparison_runs import experiments
from fedrelay.experiment.method import build_method
from fedrelay.experiment.method_catalogue import METHODS
from fedrelay.experiment.prepare import check_preparable
from fedrelay.experiment.spec import SECTIONS, Comparison, Experiment, load_file, parse_assignment, validate
from fedrelay.models.flat_layout import TORCH_GLOBALS
from fedrelay.privacy.accountant import Accountant
from fedrelay.runtime.comparison_result import load_comparison

EXAMPLES = Path(__file__).parents[2] / "examples"


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
                names = rng.choices(list(METHODS), k=rng.randint(1, 4))
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
        build_method(experiment)
    return spec


def understood_file(path: Path) -> Experiment | Comparison:
    return understood(load_file(path))


def test_mutated_specs():
    trees, found = seeds_of_trees(), Counter()
    for seed in cases(10_000):
        rng = random.Random(seed)
        tree = mutated(rng.choice(trees), rng)
        outcome = verdict(understood, tree)
        assert outcome in FAIR, f"seed {seed}"
        found[outcome] += 1
    assert 0.03 < found["accepted"] / found.total() < 0.9  # neither everything nor nothing is refused


def test_mutated_specs_made_concrete():
    trees = [tree for tree in seeds_of_trees() if "method" in tree]
    Accountant(1.0, 1e-5).epsilon(1)  # loads a package that takes seconds, once
    federation, found = make_federation([5, 9, 3, 8, 4, 7]), Counter()
    with TORCH_GLOBALS:
        module = nn.Linear(4, 3)

    def made_concrete(tree: dict) -> None:
        check_preparable(validate(Experiment, tree), federation=federation, module=module)

    for seed in cases(1_500):
        rng = random.Random(f"outline {seed}")
        tree = mutated(rng.choice(trees), rng)
        outcome = verdict(made_concrete, tree)
        assert outcome in FAIR, f"seed {seed}"
        found[outcome] += 1
    assert found["accepted"] > 0.02 * found.total()


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
    for seed in cases(1_500):
        rng = random.Random(f"text {seed}")
        text = bytearray(rng.choice(texts))
        for _ in range(rng.randint(1, 5)):
            at = rng.randrange(len(text) + 1)
            text[at : at + rng.choice((0, 0, 1, 9))] = rng.choice((*scraps, bytes([rng.randrange(256)])))
        path.write_bytes(text)
        assert verdict(understood_file, path) in FAIR, f"seed {seed}"
        assert verdict(parse_assignment, text.decode("utf-8", "replace")) in FAIR, f"seed {seed}"


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
    assert verdict(understood_file, path) == "refused"


def test_damaged_comparisons(tmp_path):
    path = tmp_path / "comparison.yaml"
    spec = validate(Comparison, load_file(EXAMPLES / "digits.yaml")).model_dump(mode="json", exclude={"out"})
    text = yaml.safe_dump(spec).encode()
    for seed in cases(300):
        path.write_bytes(damaged(text, random.Random(f"comparison {seed}")))
        assert verdict(load_comparison, tmp_path) in FAIR, f"seed {seed}"
