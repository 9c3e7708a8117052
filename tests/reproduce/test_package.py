"""The package as a consumer of FedRelay."""

from __future__ import annotations

import ast
from pathlib import Path

import fedrelay
import fedrelay_reproduce

SOURCE = Path(fedrelay.__file__).parent


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


def test_fedrelay_needs_it_for_one_command_only():
    users = [
        path.relative_to(SOURCE).as_posix()
        for path in sorted(SOURCE.rglob("*.py"))
        if any(name.split(".")[0] == "fedrelay_reproduce" for name in imported(path))
    ]
    assert users == ["cli/reproduce.py"]


def test_all_public_names_are_documented():
    assert sorted(fedrelay_reproduce.__all__) == fedrelay_reproduce.__all__
    assert all(getattr(fedrelay_reproduce, name).__doc__ for name in fedrelay_reproduce.__all__ if name != "Condition")


def test_claims_are_plain():
    """A claim's file imports the words for claims, other claims, and at most one module with formulas."""
    allowed = {"__future__", "collections.abc", "typing", "fedrelay_reproduce"}
    for path in (Path(fedrelay_reproduce.__file__).parent / "claims").glob("c*.py"):
        others = {name for name in imported(path) - allowed if not name.startswith("fedrelay_reproduce.claims.")}
        assert len(others) <= 1, path
