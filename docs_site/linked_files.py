"""Files of the repository that pages link to, as pages of the site: the site needs no network."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent

_LINK = re.compile(r"\]\((?P<target>(?:\.\./)+[^)#\s]+)(?P<anchor>#[^)]*)?\)")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".md": "markdown", ".service": "ini"}
_ON_THE_SITE = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}


def file_pages(docs: Path) -> Iterator[tuple[str, str]]:
    """The path and the text of a page for every linked file outside docs/."""
    pages = sorted(docs.rglob("*.md"))
    linked = {
        target
        for page in pages
        for found in _LINK.finditer(page.read_text(encoding="utf-8"))
        if (target := _outside(found["target"], page.relative_to(docs).as_posix())) is not None
    }
    for target in sorted(linked - set(_ON_THE_SITE)):
        yield _page_of(target), _text(REPOSITORY / target, target)


def point_to_pages(markdown: str, page: str) -> str:
    """Replace links to files outside docs/ with links to their pages. `page` is the path of the text in docs/."""

    def replaced(found: re.Match[str]) -> str:
        target = _outside(found["target"], page)
        if target is None:
            return found[0]
        place = posixpath.relpath(_ON_THE_SITE.get(target) or _page_of(target), posixpath.dirname(page))
        return f"]({place})"

    return _LINK.sub(replaced, markdown)


def _outside(target: str, page: str) -> str | None:
    """The path in the repository that a link leads to; None for links within docs/ and to nothing."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    return None if path.startswith("docs/") or not (REPOSITORY / path).exists() else path


def _page_of(target: str) -> str:
    return f"files/{target}.md"


def _text(path: Path, name: str) -> str:
    """A file in a code block, or all text files of a folder; of a notebook its text and its code."""
    if path.suffix == ".ipynb":
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return f"*{name}*\n\n" + "\n\n".join(_cell(cell["cell_type"], "".join(cell["source"])) for cell in cells)
    files = sorted(each for each in path.rglob("*") if each.suffix in _LANGUAGES) if path.is_dir() else [path]
    parts = [f"# {name}\n"]
    for file in files:
        if path.is_dir():
            parts.append(f"## {file.relative_to(path).as_posix()}\n")
        text = file.read_text(encoding="utf-8")
        fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", text))])
        parts.append(f"{fence}{_LANGUAGES.get(file.suffix, '')}\n{text.rstrip()}\n{fence}\n")
    return "\n".join(parts)


def _cell(kind: str, source: str) -> str:
    return source if kind == "markdown" else f"```python\n{source}\n```"
