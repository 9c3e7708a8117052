"""Examples in docstrings run as printed."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import fedrelay

SOURCE = Path(fedrelay.__file__).parent
MODULES = [
    ".".join(["fedrelay", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>> " in path.read_text()
]


def test_examples_are_found():
    assert {"fedrelay", "fedrelay.api"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    found = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0
