from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def load_benchmark() -> Callable[[str], ModuleType]:
    """Loads a script of `benchmarks/`, which is no package, by its name."""

    def load(name: str) -> ModuleType:
        path = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(f"{name}_command", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look themselves up there
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(path.parent)  # as if it were run: scripts import each other
            spec.loader.exec_module(module)
        return module

    return load
