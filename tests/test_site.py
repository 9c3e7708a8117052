"""The pages of the site that are made from the code: nothing is missing, and every link of them leads somewhere."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from typer.main import get_command

import fedrelay as fr
from fedrelay.cli.app import program
from fedrelay.experiment.method_catalogue import METHODS

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def modules_of_the_site(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs_site"))


def test_every_command_and_option_is_in_the_page_of_commands():
    from command_page import commands, commands_page

    page = commands_page()
    top = get_command(program()).commands
    named = {name.split()[0] for name, _ in commands()}
    assert named == set(top)
    for name, command in commands():
        [section] = re.findall(rf"^## fedrelay {name}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
        options = [option for each in command.params for option in each.opts if option.startswith("--")]
        assert [option for option in options if option not in section] == []
    assert "[bold]" not in page
    assert "[dim]" not in page


def test_every_public_name_is_in_the_reference_once():
    from python_pages import python_pages, reference_index

    texts = [text for _, text in python_pages().values()]
    shown = re.findall(r"^::: fedrelay\.(\w+)$", "\n".join(texts), re.MULTILINE)
    assert sorted(shown) == sorted(fr.__all__)
    linked = re.findall(r"\[`fr\.(\w+)`\]\((\w+)\.md", reference_index())
    assert sorted(name for name, _ in linked) == sorted(fr.__all__)
    assert {page for _, page in linked} == set(python_pages())


@pytest.mark.parametrize("name", ["fedseq", "fedprox", "fedseq2par"])
def test_the_page_of_a_method(name):
    from method_pages import method_page, route_map

    page = method_page(name)
    assert page.startswith(f"# {name}\n")
    assert f"](maps/{name}.svg)" in page
    methods = (ROOT / "docs" / "methods.md").read_text()
    anchors = re.findall(r"\(\.\./methods\.md#(\w+)\)", page)
    assert [anchor for anchor in anchors if f"\n## {anchor}\n" not in methods.lower()] == []
    assert ElementTree.fromstring(route_map(name)).tag.endswith("svg")


def test_a_map_shows_the_last_round_only_if_it_looks_different():
    from method_pages import method_page

    assert "Routes of round 1 of" in method_page("fedseq")
    assert "Routes of rounds 1 and " in method_page("fedseq2par")


def test_every_method_has_a_heading_in_the_navigation():
    from method_pages import group_of

    groups = {name: group_of(name) for name in METHODS}
    assert groups["fedseq"] == "Routes"
    assert groups["ewc"] == "Terms"
    assert groups["wfsl"] == "Warm-ups"
    assert "Others" not in groups.values()


def test_links_to_files_of_the_repository_lead_to_pages(tmp_path):
    from linked_files import file_pages, point_to_pages

    (tmp_path / "guide.md").write_text(
        "[a](../examples/digits.yaml) [b](other.md) [c](../CHANGELOG.md) [d](../none.py)"
    )
    assert [path for path, _ in file_pages(tmp_path)] == ["files/examples/digits.yaml.md"]
    text = point_to_pages((tmp_path / "guide.md").read_text(), "guide.md")
    assert text == "[a](files/examples/digits.yaml.md) [b](other.md) [c](changelog.md) [d](../none.py)"
    assert point_to_pages("[a](../../examples/digits.yaml)", "tutorial/x.md") == "[a](../files/examples/digits.yaml.md)"
