"""The shape of the package: one public door, imports that point one way, files that stay small."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fedrelay

SOURCE = Path(fedrelay.__file__).parent

# A module may import from its own layer and from those below it, never from above.
LAYERS = [
    ("quiet",),
    (
        "errors",
        "files",
        "rng",
        "wording",
        "plain_yaml",
        "sections",
        "spec",
        "plain",
        "versions",
        "routes.plan",
        "grouping.growth",
    ),
    ("data", "models", "metrics"),
    ("local", "routes", "ledger", "clock"),
    ("faults",),
    ("grouping", "selection", "merge", "engines", "attacks"),
    ("warmup",),
    ("privacy",),
    ("recipes",),
    ("store", "result", "allowance", "materials", "node"),
    ("setting",),
    ("server", "evidence"),
    ("book", "runner"),
    ("comparison", "espionage"),
    ("api", "bench"),
    ("report",),
    ("claims",),
    ("",),  # the public door
    ("cli", "__main__"),
]


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> int:
    fitting = [
        (len(name), level)
        for level, names in enumerate(LAYERS)
        for name in names
        if module == name or (name and module.startswith(f"{name}."))
    ]
    assert fitting, f"{module} belongs to no layer"
    return max(fitting)[1]


def imports_of(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "fedrelay":
            base = node.module.removeprefix("fedrelay").removeprefix(".")
            submodules = [f"{base}.{alias.name}".removeprefix(".") for alias in node.names]
            found += [name if (SOURCE / f"{name.replace('.', '/')}.py").exists() else base for name in submodules]
    return found


MODULES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_one_way(path):
    own = layer_of(module_name(path))
    above = [name for name in imports_of(path) if layer_of(name) > own]
    assert not above, f"{module_name(path)} imports from above: {above}"


def test_routes_and_merges_know_no_engine():
    for room in ("routes", "merge", "grouping", "local"):
        for path in (SOURCE / room).rglob("*.py"):
            assert not any(name.startswith("engines") for name in imports_of(path)), path


def test_engines_know_no_method():
    for path in (SOURCE / "engines").rglob("*.py"):
        forbidden = [
            n
            for n in imports_of(path)
            if n.startswith(("merge", "grouping", "recipes")) or (n.startswith("routes") and n != "routes.plan")
        ]
        assert not forbidden, (path, forbidden)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_files_stay_readable(path):
    assert len(path.read_text().splitlines()) <= 500


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_every_file_says_what_it_is_for(path):
    assert ast.get_docstring(ast.parse(path.read_text())), path


def test_the_public_door():
    assert fedrelay.__all__ == [
        "Comparison",
        "Contender",
        "DataError",
        "DivergedError",
        "EngineError",
        "Experiment",
        "FedRelayError",
        "Federation",
        "Interrupted",
        "Observer",
        "Outcome",
        "Result",
        "RoundPlan",
        "Route",
        "RunFolderError",
        "SpecError",
        "compare",
        "federate",
        "load_data",
        "methods",
        "plan",
        "resume",
        "run",
    ]
    assert all(getattr(fedrelay, name).__doc__ for name in fedrelay.__all__)


def test_importing_the_package_loads_no_heavy_extra():
    heavy = "['matplotlib', 'ray', 'flwr', 'pandas', 'sklearn', 'ortools']"
    code = f"import sys, fedrelay; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
