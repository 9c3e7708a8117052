"""The shape of the package: one public module, and imports that point one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

import pytest
from typer.main import get_command

import fedrelay
from fedrelay.cli.app import COMMANDS, PANELS, program

SOURCE = Path(fedrelay.__file__).parent

ROOMS = """
    engines.quiet_logging
    errors file_lock files notebook_display rng user_code utc_time
    experiment.error_messages experiment.yaml_files experiment.sections experiment.spec
    experiment.part_serialization runtime.versions
    routes.plan routes.execution_overlay routes.arrival routes.async_progress
    grouping.group_count_growth
    data models metrics tasks privacy.accountant
    transfer
    local routes cost robustness.guard robustness.tampering
    robustness
    grouping selection merge engines
    warmup
    privacy
    experiment.part_docs
    experiment.method_catalogue
    experiment.method_registration
    experiment.resolved_options experiment.method_grammar experiment.method
    experiment.comparison_runs experiment.sweep_cells
    runtime.record_lines runtime.run_state runtime.unsaved_inputs
    runtime.html_table runtime.client_scores
    runtime.run_folder_reader runtime.run_folder runtime.result
    experiment.data_and_model experiment.prepared_experiment engines.flower.node
    cost.cost_model
    runtime.planner
    experiment
    runtime
    robustness.gan_attack_run
    tuning
    report
    api
    __init__
    cli __main__
"""
"""The rooms of the package, lowest first. A module imports from its own line and the lines above it in this list.

A room is a package, a module, or one module of a package that is used lower than the rest (`routes.plan`).
`__init__` is the public module.
"""

FORBIDDEN = {
    "routes merge grouping local": "engines",
    "engines": "merge grouping experiment.method_catalogue routes",
}
"""Rooms → rooms they never import from, even where the order allows it. `routes.plan` is a room of its own."""

LEVELS = {room: level for level, line in enumerate(ROOMS.strip().splitlines()) for room in line.split()}


def module_name(path: Path) -> str:
    """`fedrelay/data/table.py` → `data.table`; a package's `__init__.py` stands for the package."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "__init__"


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def room_of(module: str) -> str:
    """The most specific room that a module belongs to."""
    rooms = [room for room in LEVELS if module == room or module.startswith(f"{room}.")]
    assert rooms, f"{module} belongs to no room: add it to ROOMS"
    return max(rooms, key=len)


def dotted_names(source: str, package: str) -> Iterator[str]:
    """The absolute name of everything that a source imports, in whatever form and wherever it stands.

    Args:
        source: The text of a module.
        package: The package of the module, to which relative imports refer.
    """
    tree = ast.parse(source)
    importers = {"importlib.import_module", "__import__", "builtins.__import__"}
    known = {"__import__": "__import__"}  # local name → what it is
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
                known[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
            for alias in node.names:
                yield base if alias.name == "*" else f"{base}.{alias.name}"
                known[alias.asname or alias.name] = f"{base}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            given = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "name")]
            if given and isinstance(given[0], ast.Constant) and isinstance(given[0].value, str):
                first, _, rest = ast.unparse(node.func).partition(".")
                if f"{known.get(first, first)}.{rest}".rstrip(".") in importers:
                    yield resolve_name(given[0].value, package)


@cache
def names_in(source: str, package: str) -> tuple[str, ...]:
    """The same as a tuple; several tests look at all modules."""
    return tuple(dotted_names(source, package))


def imported_modules(source: str, package: str) -> list[str]:
    """The modules of FedRelay that a source imports: `data.table`, or `__init__` for the public module."""
    found = []
    for name in names_in(source, package):
        if name.split(".")[0] == "fedrelay":
            parts = name.split(".")[1:]
            while parts and ".".join(parts) not in MODULES:  # the last parts name a class or a function
                parts.pop()
            found.append(".".join(parts) or "__init__")
    return found


def package_of(path: Path) -> str:
    """`fedrelay/data/table.py` → `fedrelay.data`."""
    return ".".join(path.relative_to(SOURCE.parent).parent.parts)


def imports_of(module: str) -> list[str]:
    """The modules of FedRelay that one of its modules imports."""
    path = MODULES[module]
    return imported_modules(path.read_text(), package_of(path))


@pytest.mark.parametrize(
    "source",
    [
        "import fedrelay.engines.base",
        "import fedrelay.engines.base as base",
        "import os, fedrelay.engines.base",
        "from fedrelay.engines import base",
        "from fedrelay.engines.base import Engine as Other",
        "from fedrelay.engines.base import *",
        "from ..engines import base",
        "from ..engines.base import Engine",
        "from .. import engines; from ..engines import base",
        "def late():\n    import fedrelay.engines.base",
        "def late():\n    from fedrelay.engines import base",
        "class Late:\n    from fedrelay.engines import base",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from fedrelay.engines.base import Engine",
        "try:\n    import fedrelay.engines.base\nexcept ImportError:\n    pass",
        "import importlib\nimportlib.import_module('fedrelay.engines.base')",
        "import importlib as tools\ntools.import_module('fedrelay.engines.base')",
        "import importlib\nimportlib.import_module(name='fedrelay.engines.base')",
        "import importlib\nimportlib.import_module('..engines.base', __package__)",
        "from importlib import import_module\nimport_module('fedrelay.engines.base')",
        "from importlib import import_module as load\nload('fedrelay.engines.base').Engine",
        "def late():\n    from importlib import import_module\n    return import_module('fedrelay.engines.base')",
        "__import__('fedrelay.engines.base')",
        "import builtins\nbuiltins.__import__('fedrelay.engines.base')",
    ],
)
def test_every_form_of_import_is_seen(source):
    assert "engines.base" in imported_modules(source, "fedrelay.routes")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import fedrelay", ["__init__"]),
        ("import fedrelay as fr", ["__init__"]),
        ("from fedrelay import run", ["__init__"]),
        ("from fedrelay import data", ["data"]),
        ("from .. import errors", ["errors"]),
        ("from . import base", ["routes.base"]),
        ("import numpy, importlib\nimportlib.import_module('json')", []),
        ("print('import fedrelay.engines.base')  # nor comments: import fedrelay.api", []),
        ("import_module('fedrelay.engines.base')  # a function of our own", []),
    ],
)
def test_imports_are_named_after_their_module(source, found):
    assert imported_modules(source, "fedrelay.routes") == found


def test_every_room_exists():
    forbidden = {room for rooms in (*FORBIDDEN, *FORBIDDEN.values()) for room in rooms.split()}
    assert [room for room in LEVELS if room not in MODULES] == []
    assert forbidden <= set(LEVELS)


def test_imports_point_one_way():
    crossed = [
        f"{module} imports {name}"
        for module in MODULES
        for name in imports_of(module)
        if LEVELS[room_of(name)] > LEVELS[room_of(module)]
    ]
    assert crossed == []


@pytest.mark.parametrize(("rooms", "others"), FORBIDDEN.items())
def test_methods_and_engines_know_nothing_of_each_other(rooms, others):
    crossed = [
        f"{module} imports {name}"
        for module in MODULES
        if room_of(module) in rooms.split()
        for name in imports_of(module)
        if room_of(name) in others.split()
    ]
    assert crossed == []


def test_published_claims_are_known_to_their_command_alone():
    """`fedrelay_reproduce` uses the package; the package does not use it."""
    users = []
    for module, path in MODULES.items():
        names = names_in(path.read_text(), package_of(path))
        users += [module] if any(name.split(".")[0] == "fedrelay_reproduce" for name in names) else []
    assert users == ["cli.reproduce"]
    for path in (SOURCE.parent / "fedrelay_reproduce").rglob("*.py"):
        imported = imported_modules(path.read_text(), package_of(path))
        assert not any(name.split(".")[0] == "cli" for name in imported), path


def test_the_process_of_a_superlink_imports_nothing_else_of_fedrelay():
    """It would take seconds and a few hundred megabytes."""
    own = "engines.flower.wire.superlink_process"
    imported = {name for module in MODULES if module.startswith(own) for name in imports_of(module)}
    assert imported
    assert all(name.startswith(own) for name in imported)


def test_the_public_names():
    assert fedrelay.__all__ == sorted(fedrelay.__all__)
    assert all(getattr(fedrelay, name).__doc__ for name in fedrelay.__all__)
    assert not [name for name in fedrelay.__all__ if name in MODULES]  # a submodule would hide the function


HEAVY = ("torch", "numpy", "scipy", "sklearn", "ortools", "matplotlib", "pandas", "ray", "flwr")
"""What takes long to import."""

RARELY_NEEDED = (*(name for name in HEAVY if name not in ("torch", "numpy")), "PIL", "torch._dynamo", "sympy")
"""What a plain run does without."""

QUICK_COMMANDS = {
    "--help": 0,
    "--version": 0,
    "methods": 0,
    "show run": 0,
    "run --help": 0,
    "plan --help": 0,
    "node --help": 0,
    "run fedsek": 2,
    "run fedseq+": 2,
    "run fedseq --rounds 0": 2,
    "plan fedseq --set rounds=x": 2,
    "plan fedseq --set data.alpha=x": 2,
    "show nowhere": 4,
}
"""Commands that train nothing, or refuse to start, and their exit codes."""


def test_a_command_loads_no_other_command():
    """All of them together take longer to load than many a command runs."""
    code = """
import sys
from fedrelay.cli import main
assert main(["show", "--help"]) == 0
assert "fedrelay.cli.show" in sys.modules
assert not {"fedrelay.cli.run", "fedrelay.cli.deploy", "fedrelay.tuning"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_command_is_found_by_its_name():
    assert set(get_command(program()).commands) == COMMANDS
    for modules in PANELS.values():
        for names in modules.values():
            assert all(set(get_command(program(name)).commands) == set(names) for name in names)


def test_commands_that_train_nothing_load_nothing_heavy(tmp_path):
    """In a process of its own, one after another; `import fedrelay` and its public errors are quick, too."""
    fedrelay.run("fedavg", clients=2, rounds=1, workers=1, out=tmp_path / "run")
    fedrelay.compare(["fedavg", "fedseq"], clients=2, rounds=1, workers=1, seeds=[1, 2], out=tmp_path / "comparison")
    code = f"""
import sys, fedrelay
from fedrelay.cli import main
fedrelay.SpecError, fedrelay.Experiment
for words, code in {QUICK_COMMANDS}.items():
    assert main(words.split()) == code, words
    assert not (found := [name for name in {HEAVY} if name in sys.modules]), (words, found)
for command in ("show", "report"):
    assert main([command, "comparison"]) == 0
    found = [name for name in {HEAVY} if name != "numpy" and name in sys.modules]
    assert not found, (command, found)
assert main("run fedavg --clients 2 --rounds 1 --workers 1 --out other".split()) == 0
import torch
from fedrelay.cost.flops import training_flops
assert training_flops(torch.nn.Linear(2, 1), torch.zeros(2, 2), torch.zeros(2), lambda outputs, _: outputs.sum())
found = [name for name in {RARELY_NEEDED} if name in sys.modules]
assert not found, found
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
