"""What `make` says before it installs PyTorch."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
in_words = runpy.run_path(str(ROOT / "tools" / "torch_build.py"))["in_words"]


@pytest.mark.parametrize(
    ("packages", "said"),
    [
        (
            [("torch", "2.13.0"), ("nvidia-cudnn-cu12", "9"), ("triton", "3")],
            "with CUDA, and 2 packages for GPUs: about 3 GB to download and 5 GB on disk",
        ),
        ([("torch", "2.13.0+cu130")], "with CUDA"),
        ([("torch", "2.13.0+cpu"), ("sympy", "1")], "PyTorch 2.13.0+cpu without CUDA: about 0.7 GB on disk."),
        ([("torch", "2.13.0")], "without CUDA"),
        ([], "is there already"),
    ],
)
def test_the_build_is_named_with_its_size(packages, said):
    assert said in in_words(packages)


def test_the_section_it_names_is_there():
    heading, page = re.search(r"see '([^']+)' in (\S+)\.$", in_words([("torch", "2.13.0+cu130")])).groups()
    assert f"## {heading}\n" in (ROOT / page).read_text(encoding="utf-8")
