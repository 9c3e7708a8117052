"""Results and comparisons made up of round numbers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import no_browser
from tests.report.folders import compared, ran

from fedrelay.experiment.method_catalogue import training_of
from fedrelay.experiment.spec import comparison, experiment
from fedrelay.runtime.comparison_result import ComparisonResult, MethodResults
from fedrelay.runtime.result import Result

MakeOutcome = Callable[..., ComparisonResult]


def make_result(
    folder: Path, method: str, accuracies: Sequence[float], seed: int = 1, traffic: int = 1000, **settings: object
) -> Result:
    """A run with these accuracies; every round costs 2 updates and 3 transfers."""
    rounds = len(accuracies)
    run = folder / f"{method}-{seed}"
    run.mkdir(parents=True, exist_ok=True)
    (run / "plan.json").write_text(json.dumps({"clients": 10, "parameters": 4810, "longest_route": 2}))
    history = [
        {"round": t, "accuracy": accuracy, "loss": 0.5, "f1": accuracy, "client_updates": 2 * t, "bytes": traffic * t}
        for t, accuracy in enumerate(accuracies, start=1)
    ]
    return Result(
        experiment=experiment(method, rounds=rounds, seed=seed, **settings),
        training=training_of(method),
        history=history,
        weights=torch.zeros(3),
        model={},
        rounds=rounds,
        client_updates=2 * rounds,
        longest_route=2,
        transfers={"s2c": rounds, "c2s": rounds, "c2c": rounds},
        bytes=traffic * rounds,
        seconds=1.5,
        run=run,
    )


@pytest.fixture
def result(tmp_path: Path) -> Result:
    """One run of four rounds."""
    return make_result(tmp_path, "fedseq", [0.5, 0.75, 0.85, 0.8])


@pytest.fixture
def outcome(tmp_path: Path) -> MakeOutcome:
    """Call with method → accuracies of every seed; an empty list is a method that diverged."""

    def make(
        methods: dict[str, list[list[float]]], baseline: str | None = None, **settings: object
    ) -> ComparisonResult:
        results = [
            MethodResults(
                method,
                method,
                tuple(
                    make_result(tmp_path, method, curve, seed, 0 if method == "centralized" else 1000, **settings)
                    for seed, curve in enumerate(curves, start=1)
                ),
                () if curves else ("seed 1: round 3: the model left client 7",),
            )
            for method, curves in methods.items()
        ]
        seeds = list(range(1, 1 + max(len(curves) for curves in methods.values())))
        common = {"seeds": seeds or [1], "baseline": baseline, "out": tmp_path / "out", **settings}
        return ComparisonResult(comparison(list(methods), **common), tuple(results))

    return make


@pytest.fixture(scope="session")
def comparison_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison that is complete; nobody changes it."""
    return compared(tmp_path_factory.mktemp("report") / "three")


@pytest.fixture(scope="session")
def slots_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which models wait in slots; nobody changes it."""
    return ran(tmp_path_factory.mktemp("report") / "slots", "fedseqinter", rounds=4, **{"grouping.max_clients": 4})


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One Chromium for all tests of a session."""
    try:
        from selenium import webdriver
    except ImportError:
        no_browser()
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        no_browser()
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1200,900",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    found.set_script_timeout(10)
    try:
        yield found
    finally:
        found.quit()
