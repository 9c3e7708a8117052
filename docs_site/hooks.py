"""Adds to the site what is made from the code: pages of methods, commands and Python names, and linked files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from command_page import commands_page
from linked_files import REPOSITORY, file_pages, point_to_pages
from method_pages import group_of, method_page, route_map
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from python_pages import python_pages, reference_index

from fedrelay.experiment.method_catalogue import METHODS

CHANGELOG = "changelog.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation with the pages that are made here."""
    sections = {title: pages for entry in config.nav or [] for title, pages in entry.items()}
    groups: dict[str, list[Any]] = {}
    for name in METHODS:
        groups.setdefault(group_of(name), []).append({name: f"methods/{name}.md"})
    sections["Methods"] += [{group: pages} for group, pages in groups.items()]
    python = [{title: f"reference/{name}.md"} for name, (title, _) in python_pages().items()]
    sections["Reference"] += [{"Commands": "reference/commands.md"}, {"Python": python}]
    sections["Project"].append({"Changelog": CHANGELOG})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    for path, content in _made_pages(Path(config.docs_dir)):
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files of the repository lead to their pages on the site."""
    return point_to_pages(markdown, page.file.src_uri)


def _made_pages(docs: Path) -> Iterator[tuple[str, str | bytes]]:
    yield CHANGELOG, (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    yield "reference/index.md", reference_index()
    yield "reference/commands.md", commands_page()
    for name, (_, text) in python_pages().items():
        yield f"reference/{name}.md", text
    for method in METHODS:
        yield f"methods/{method}.md", method_page(method)
        yield f"methods/maps/{method}.svg", route_map(method)
    yield from file_pages(docs)
