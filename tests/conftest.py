"""Toy federations and models with exact numbers, shared by all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NoReturn

# Children of tests compute with one thread too; results do not depend on it, the machine's patience does.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from tests.tuning.tiny import tiny_tuning
from tests.warm_python import WarmPython

from fedrelay.data.dataset import Dataset
from fedrelay.data.federation import ArrayFederation
from fedrelay.data.partition import ClientIndices
from fedrelay.tuning.result import TuningResult
from fedrelay.tuning.run_tuning import run_tuning

# Deterministic, and patient with a busy machine.
settings.register_profile(
    "fedrelay", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fedrelay")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as where a shell starts the tests in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Nobody pulls the plug here; what would be lost then is asked in test_power_loss.py. Waiting for disks takes minutes.
os.fsync = lambda handle: None

NO_BROWSER = "no Chromium with its chromedriver and selenium"


LONG_FILES = (
    "test_scripts.py",
    "test_combinations.py",
    "engines/ray/test_ray_executor.py",
    "test_plugin.py",
    "engines/flower/test_processes.py",
    "test_documented_code.py",
    "cli/test_reproduce.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long go first: at the end, no worker is alone with one of them."""
    ranks = {Path(__file__).parent / name: rank for rank, name in enumerate(LONG_FILES)}
    if sys.version_info >= (3, 13):  # a process that has used Ray cannot fork any more, see `forking_is_safe`
        ranks[Path(__file__).parent / "engines/ray/test_ray_executor.py"] = len(ranks) + 1
    items.sort(key=lambda item: ranks.get(item.path, len(LONG_FILES)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is made while tests are collected stays: looking for garbage among it would take a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def no_browser() -> NoReturn:
    """Skip a test that needs a browser; fail where one is required, as in CI."""
    if os.environ.get("FEDRELAY_REQUIRE_BROWSER"):
        pytest.fail(f"{NO_BROWSER} was found, and FEDRELAY_REQUIRE_BROWSER is set", pytrace=False)
    pytest.skip(NO_BROWSER)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how to get a browser where tests were skipped for want of one."""
    skipped = [report for report in terminalreporter.stats.get("skipped", ()) if NO_BROWSER in str(report.longrepr)]
    if skipped:
        how = "apt-get install chromium chromium-driver"
        terminalreporter.write_line(f"{len(skipped)} tests of the report's page need a browser: {how}", yellow=True)


@pytest.fixture(scope="session")
def warm_python() -> Iterator[WarmPython]:
    """Starts Python processes in milliseconds."""
    found = WarmPython()
    yield found
    found.close()


@pytest.fixture
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are files of a few bytes, for tests of what is written beside them; `tests/report` draws real ones."""
    monkeypatch.setattr("fedrelay.report.drawing.render", lambda *figures, **settings: b"a drawing")


def make_federation(sizes: list[int], classes: int = 3, features: int = 4, seed: int = 0) -> ArrayFederation:
    """Clients of the given sizes with random rows."""
    rng = np.random.default_rng(seed)
    total = sum(sizes)
    offsets = np.concatenate([[0], np.cumsum(sizes)])

    def rows(count: int) -> np.ndarray:
        return rng.normal(size=(count, features)).astype(np.float32)

    def labels(count: int) -> np.ndarray:
        return rng.integers(0, classes, count)

    dataset = Dataset("toy", "tabular", rows(total), labels(total), rows(20), labels(20), classes)
    return ArrayFederation(dataset, ClientIndices(np.arange(total), offsets), seed=0)


@pytest.fixture
def toy() -> ArrayFederation:
    """Six clients of unequal size."""
    return make_federation([5, 9, 3, 8, 4, 7])


@pytest.fixture
def linear() -> torch.nn.Module:
    """A linear classifier with fixed weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return torch.nn.Linear(4, 3)


@pytest.fixture
def partly_frozen() -> torch.nn.Module:
    """18 trained and 35 frozen parameters, and 11 values in buffers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        frozen = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5)).requires_grad_(False)
        return torch.nn.Sequential(frozen, torch.nn.ReLU(), torch.nn.Linear(5, 3))


@pytest.fixture
def small() -> dict[str, object]:
    """Settings of a run that takes a moment: one worker, because forking costs more than the run."""
    settings = {"data": "digits", "clients": 20, "alpha": 0, "rounds": 3, "fraction": 0.3, "batch_size": 8}
    return {**settings, "workers": 1}


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> TuningResult:
    """A tiny tuning of two methods, run once; tests leave its folder as it is."""
    return run_tuning(tiny_tuning(), tmp_path_factory.mktemp("tuned") / "here")
