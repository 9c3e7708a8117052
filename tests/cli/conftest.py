"""The program run inside the test's own process, in a folder of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedrelay.cli import main

TINY = ["--clients", "10", "--rounds", "2", "--workers", "1", "--batch-size", "32"]


@dataclass(frozen=True)
class Ended:
    """How a command ended and what it wrote, without colours."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The object on the last line of stdout."""
        return dict(json.loads(self.out.splitlines()[-1]))


Program = Callable[..., Ended]


@pytest.fixture
def program(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Program:
    """Call with the words of a command line; the current folder is the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for variable in ("FORCE_COLOR", "FEDRELAY_DATA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))

    def run(*words: str) -> Ended:
        capsys.readouterr()
        code = main(words)
        out, err = (re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text) for text in capsys.readouterr())
        return Ended(code, out, err)

    return run


@pytest.fixture
def tiny() -> list[str]:
    """Options of a run that takes a moment."""
    return list(TINY)
