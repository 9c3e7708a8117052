from __future__ import annotations

from pathlib import Path

import pytest

from fedrelay.experiment.comparison_runs import experiments
from fedrelay.experiment.method import build_method
from fedrelay.experiment.spec import Comparison, Experiment, load_file, validate

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_is_valid_and_opens_with_its_command(path):
    tree = load_file(path)
    comparison = "methods" in tree
    opening = [line for line in path.read_text().splitlines() if line.startswith("#")]
    command = f"fedrelay {'compare' if comparison else 'run'} examples/{path.name}"
    assert any(line.removeprefix("#").strip() == command for line in opening)
    assert any("Result" in line for line in opening)
    if comparison:
        assert experiments(validate(Comparison, tree))
    else:
        assert build_method(validate(Experiment, tree))


def test_the_demo():
    demo = validate(Comparison, load_file(EXAMPLES / "digits.yaml"))
    assert [entry.method for entry in demo.methods] == ["fedavg", "fedcyclic", "fedseq", "centralized"]
    assert (demo.data.clients, demo.data.alpha, demo.rounds, demo.fraction) == (100, 0, 60, 0.2)
    assert (demo.model.name, demo.train.batch_size, demo.train.lr, demo.seeds) == ("mlp", 8, 0.05, (1, 2, 3))
