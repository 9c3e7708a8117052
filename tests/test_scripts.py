"""Every script in `benchmarks/` and `examples/` still runs, and so does every example file."""

from __future__ import annotations

import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.conftest import LONG_FILES

from fedrelay.cli import main
from fedrelay.experiment.spec import load_file

ROOT = Path(__file__).parent.parent
CONTENDERS = ROOT / "benchmarks" / "peers"
"""What `benchmarks/peers.py` runs, also in its own smoke mode."""

SCRIPTS = [
    path
    for pattern in ("benchmarks/*.py", "benchmarks/[!.]*/**/*.py", "examples/**/*.py")  # `.venvs` has other frameworks
    for path in sorted(ROOT.glob(pattern))
    if CONTENDERS not in path.parents and 'if __name__ == "__main__":' in path.read_text()
]


PRELOADED = ("fedrelay.report.drawing", "torch._dynamo")
"""What several scripts import, directly or through PyTorch's optimisers, and what takes a second or two."""

NEEDED = {"lora.py": ("transformers", "peft")}
"""Script → optional packages without which it ends with a message."""


@pytest.fixture(scope="module")
def warm_scripts(warm_python):
    """Starts scripts in milliseconds."""
    warm_python.preload(*PRELOADED)
    return warm_python


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_smoke(path, warm_scripts, tmp_path):
    assert '"--smoke"' in path.read_text(), f"{path.name} needs an option --smoke: a tiny run that takes seconds"
    for package in NEEDED.get(path.name, ()):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed (pip install 'fedrelay[hf]')")
    done = warm_scripts.run(path, "--smoke", folder=tmp_path)
    assert done.returncode == 0, done.err
    assert done.out.strip()
    assert list(tmp_path.iterdir()) == [], "a smoke run leaves nothing behind"


def test_an_example_that_lacks_packages_fails(monkeypatch):
    main = runpy.run_path(str(ROOT / "examples" / "lora" / "lora.py"), run_name="lora")["main"]
    monkeypatch.setattr("sys.argv", ["lora.py", "--smoke"])
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SystemExit, match=r"transformers and peft are not installed \(pip install 'fedrelay\[hf\]'\)"):
        main()


def test_long_files_exist():
    assert [name for name in LONG_FILES if not (ROOT / "tests" / name).is_file()] == []


def test_scripts_are_found():
    assert {path.name for path in SCRIPTS} >= {"peers.py", "scale.py", "demo.py"}


def test_smoke_of_peers_runs_every_contender():
    source = (ROOT / "benchmarks" / "peers.py").read_text()
    assert [path.name for path in CONTENDERS.glob("*_run.py") if path.name not in source] == []


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_example_runs(path, tmp_path):
    command = ["compare", "--seeds", "1"] if "methods" in load_file(path) else ["run"]
    rounds = "11" if "warmup" in path.read_text() else "1"  # a warm-up of ten rounds needs one more
    natural = load_file(path).get("data") == "heart-disease"  # its clients are four hospitals
    clients = [] if natural else ["--clients", "10"]
    tiny = [*clients, "--rounds", rounds, "--workers", "1", "--out", str(tmp_path / "out")]
    assert main([*command, str(path), *tiny, "-q"]) == 0
