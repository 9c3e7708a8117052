"""The pages of all public names of `import fedrelay as fr`, from their docstrings."""

from __future__ import annotations

import inspect
from functools import cache

import fedrelay as fr

PAGES = {
    "functions": ("Functions", ("api",)),
    "results": ("Results", ("runtime.result", "runtime.comparison", "runtime.sweep", "tuning")),
    "callbacks": ("Callbacks and loggers", ("runtime.callback", "runtime.interrupt", "runtime.tracking")),
    "data": ("Data", ("data",)),
    "tasks": ("Tasks", ("tasks",)),
    "parts": (
        "Parts of a method",
        ("routes", "grouping", "local", "merge", "warmup", "experiment.method"),
    ),
    "specs": ("Specs", ("experiment.spec",)),
    "errors": ("Errors", ("errors",)),
    "other": ("Other names", ("",)),
}
"""Page → its title, and where its names are defined; a name goes to the first page that fits."""


@cache
def python_pages() -> dict[str, tuple[str, str]]:
    """Page → its title and its text, for every page that has names."""
    names: dict[str, list[str]] = {}
    for name in fr.__all__:
        home = f"{fr._MODULES[name].removeprefix('fedrelay.')}.{name}"
        names.setdefault(next(page for page, (_, homes) in PAGES.items() if home.startswith(homes)), []).append(name)
    return {page: (title, _text(title, names[page])) for page, (title, _) in PAGES.items() if page in names}


def summary(name: str) -> str:
    """The first sentence of a name's docstring."""
    value = getattr(fr, name)
    text = inspect.getdoc(value) if callable(value) else None
    return (text or "The version of the package.").split("\n")[0].replace("|", r"\|")


def reference_index() -> str:
    """What the reference holds, and all Python names in one table."""
    rows = [
        f"| [`fr.{name}`]({page}.md#fedrelay.{name}) | {summary(name)} |"
        for page, (_, text) in python_pages().items()
        for name in fr.__all__
        if f"::: fedrelay.{name}\n" in text
    ]
    return "\n".join(
        [
            "# Reference\n",
            "Everything here is made from the code: [settings](../settings.md), [commands](commands.md), "
            "[methods](../methods.md), and all names of `import fedrelay as fr`:\n",
            "| name | what it is |",
            "|---|---|",
            *rows,
            "",
        ]
    )


def _text(title: str, names: list[str]) -> str:
    return "\n".join([f"# {title}\n", *(f"::: fedrelay.{name}\n" for name in names)])
