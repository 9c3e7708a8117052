import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fedrelay.data.dataset import Dataset
from fedrelay.data.registry import DATASETS


@pytest.fixture
def real() -> Callable[[str], Dataset]:
    """Load a real data set below `$FEDRELAY_DATA`, or skip the test."""

    def load(name: str, folder: str | None = None) -> Dataset:
        root = os.environ.get("FEDRELAY_DATA")
        found = DATASETS[name].find(Path(root) / (folder or name)) if root else None
        if found is None:
            pytest.skip(f"no {name} below $FEDRELAY_DATA")
        return DATASETS[name].load(found)

    return load
