"""Documentation that must not fall behind the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from fedrelay import errors
from fedrelay.data.registry import DATASETS
from fedrelay.models.zoo import MODELS
from fedrelay.recipes import CATALOGUE
from fedrelay.report import pages
from fedrelay.spec import Data, FaultKind

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("name", pages.PAGES)
def test_pages_made_from_the_code_are_up_to_date(name):
    assert (ROOT / "docs" / name).read_text() == pages.PAGES[name](), "run: make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not missing


def test_every_method_is_in_the_readme():
    text = (ROOT / "README.md").read_text()
    assert [name for name in CATALOGUE if f"`{name}`" not in text] == []


def test_every_data_set_partition_and_model_is_in_the_data_page():
    text = (ROOT / "docs" / "data.md").read_text()
    partitions = re.findall(r"'([\w-]+)'", str(Data.model_fields["partition"].annotation))
    assert len(partitions) == 6
    assert [name for name in [*DATASETS, "synthetic", *partitions, *MODELS] if f"`{name}`" not in text] == []


def test_every_exit_code_is_in_the_readme():
    said = re.search(r"Exit codes: (.*?)\n\n", (ROOT / "README.md").read_text(), re.DOTALL)
    assert said is not None
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.FedRelayError)
    ]
    codes = {kind.exit_code for kind in kinds}
    assert codes == {1, 2, 3, 4, 5, 6}
    assert [code for code in codes if not re.search(rf"(^|, |\n){code} ", said[1])] == []


def test_every_fault_is_in_the_page_about_faults():
    text = (ROOT / "docs" / "faults.md").read_text()
    assert [kind for kind in get_args(FaultKind) if f"`{kind}`" not in text] == []
