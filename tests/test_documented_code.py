"""The code in README.md and docs/*.md does what it says: Python runs, commands run in small, YAML is a valid spec.

A block that cannot run here has a comment in the line above it, which a reader of the page does not see:

    <!-- test: skip because it needs a Ray cluster -->
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from fedrelay.cli import main
from fedrelay.cli.app import program
from fedrelay.engines.flower.roster import Roster
from fedrelay.experiment.method_catalogue import METHODS

pytestmark = pytest.mark.usefixtures("no_drawing")

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TUTORIAL = sorted((ROOT / "docs" / "tutorial").glob("*.md"))
"""The steps of the tutorial; `test_tutorial.py` follows them."""

FENCE = re.compile(
    r"(?:^<!-- test: (?P<marker>.*) -->\n)?"
    r'^```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    page: Path
    line: int
    language: str
    text: str
    marker: str
    title: str = ""
    """The name of the file that the block shows."""

    @property
    def skipped(self) -> bool:
        return self.marker.startswith("skip because ")

    def __str__(self) -> str:
        return f"{self.page.name}, line {self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("language")) + 1
        yield Block(page, line, found["language"], found["text"], found["marker"] or "", found["title"] or "")


BLOCKS = [block for page in PAGES for block in blocks(page)]
SKIPPED = [block for block in BLOCKS if block.skipped]


def pages_with(language: str) -> list[Path]:
    return list(dict.fromkeys(block.page for block in BLOCKS if block.language == language and not block.skipped))


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """A folder with the table that pages use; runs are small, so starting workers would take longer than they do."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)
    rows = [f"{row},{30 + row},{'north' if row % 3 else 'south'},{row % 2}" for row in range(24)]
    (tmp_path / "patients.csv").write_text("\n".join(["patient,age,hospital,ill", *rows]))


@pytest.fixture(autouse=True)
def forget_methods_of_pages():
    known = set(METHODS)
    yield
    for name in set(METHODS) - known:
        del METHODS[name]


def test_every_block_is_found():
    assert len(BLOCKS) == sum(page.read_text().count("\n```") for page in PAGES) / 2
    checked, shown = {"python", "yaml", "sh"}, {"", "json", "toml", "csv", "text", "bibtex"}
    assert {block.language for block in BLOCKS} <= checked | shown, "a shell block is 'sh'"
    assert {block.marker for block in BLOCKS if not block.skipped} == {""}, "a marker is 'skip because …'"
    assert len(SKIPPED) <= 3


# Python


@pytest.mark.parametrize("page", pages_with("python"), ids=lambda page: page.name)
def test_python_blocks_run(page):
    """One namespace for all blocks of a page, as for a reader who types them one after another."""
    namespace: dict[str, object] = {"__name__": page.stem}
    executed = 0
    for block in blocks(page):
        if block.language == "python" and not block.skipped:
            padded = "\n" * block.line + block.text  # so that a traceback names the line of the page
            exec(compile(padded, page, "exec", dont_inherit=True), namespace)
            executed += 1
    assert executed or all(block.skipped for block in blocks(page) if block.language == "python")


@pytest.mark.parametrize("inside", [False, True], ids=["of users", "of the package"])
def test_python_blocks_pass_the_linter(tmp_path, inside):
    """The page about the architecture shows a file of the package; to all other code, fedrelay is a library."""
    of_tutorial = [block for page in TUTORIAL for block in blocks(page)]
    for block in (block for block in [*BLOCKS, *of_tutorial] if block.language == "python"):
        if (block.page.stem == "architecture") is inside:
            (tmp_path / (block.title or f"{block.page.stem}_{block.line}.py")).write_text(block.text)
    assert list(tmp_path.iterdir())
    rules = ["--config", str(ROOT / "pyproject.toml"), "--ignore", "D100,D101,D103,F821,B018", "--line-length", "120"]
    rules += ["--config", 'lint.isort.known-first-party = ["fedrelay"]'] if inside else []
    for command in (["check", *rules], ["format", "--check", "--config", str(ROOT / "pyproject.toml")]):
        done = subprocess.run([sys.executable, "-m", "ruff", *command, str(tmp_path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


MODULES = [
    block
    for block in BLOCKS
    if block.language == "python" and "\nclass " in block.text and "(fr.Callback)" not in block.text
]
"""Blocks that stand for a whole module: a part of a method."""


@pytest.mark.parametrize("sampled", [1, 2, 3])
def test_the_route_of_the_example_visits_every_sampled_client(sampled):
    [pairs] = [block for block in MODULES if "class Pairs" in block.text]
    namespace: dict[str, object] = {"__name__": "pairs"}
    exec(pairs.text, namespace)
    context = namespace["fr"].PlanningContext(client_count=3, fraction=sampled / 3, seed=1)
    plan = namespace["Pairs"]().plan(context, round=1)
    assert [len(route.clients) for route in plan.routes] == {1: [1], 2: [2], 3: [2, 1]}[sampled]
    assert len({client for route in plan.routes for client in route.clients}) == sampled


def test_modules_train_nothing_when_they_are_imported():
    # extending: a route, a term, a merge, a grouping; architecture, coming-from: a merge each
    assert len(MODULES) == 6
    assert [str(block) for block in MODULES if "fr.run(" in block.text or "fr.compare(" in block.text] == []


@pytest.mark.slow
def test_modules_are_typed(tmp_path):
    for block in MODULES:
        (tmp_path / f"{block.page.stem.lower()}_{block.line}.py").write_text(block.text)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        *map(str, tmp_path.glob("*.py")),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


# YAML


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "yaml"], ids=str)
def test_yaml_blocks_are_valid(block, tmp_path):
    file = tmp_path / "spec" / "block.yaml"
    file.parent.mkdir()
    file.write_text(block.text)
    tree = yaml.safe_load(block.text)
    if "tune" in tree:
        assert main(["tune", str(file), *TINY["tune"]]) == 0
    elif "methods" in tree:
        assert main(["compare", str(file), *TINY["compare"]]) == 0
    elif "method" not in tree:
        Roster.model_validate(tree)
    else:
        assert main(["plan", str(file), "-q"]) == 0


# Shell

SMALL = ["--clients", "10", "--rounds", "1", "--workers", "1", "-q"]
TINY = {
    "run": SMALL,
    "compare": [*SMALL, "--seeds", "1"],
    "resume": ["-q"],
    "show": ["-q"],
    "report": ["-q"],
    "plan": ["-q"],
    "tune": ["--dry-run", "-q"],
    "group": ["--clients", "10", "-q"],
    "methods": [],
    "data": [],
    "reproduce": ["--dry-run", "-q"],
    "attack label-flip": [*SMALL, "--seeds", "1", "--data", "digits"],
    "certificates": ["-q"],
    "key": ["-q"],
}
"""Commands that are run, each with options that make it small; of other commands only the words are checked."""

WHOLE_PROGRAM = get_command(program())
SHELL_WORDS = {"cd", "cp", "done", "export", "for", "kill", "mkdir", "ray", "source"}


def commands(text: str) -> Iterator[list[str]]:
    """The simple commands of a shell block, as words; loops are walked through once."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set(";&|") or word == "do":
                if words:
                    yield words
                words = []
            else:
                words.append(word)


def parsed(words: list[str]) -> tuple[str, dict[str, object]]:
    """The name of a command and the values of its parameters; fails where it would be refused."""
    command, name, words = WHOLE_PROGRAM, "", list(words)
    while hasattr(command, "commands") and words and words[0] in command.commands:
        name, command = f"{name} {words[0]}".strip(), command.commands[words.pop(0)]
    assert name, f"there is no command 'fedrelay {words[0] if words else ''}'"
    return name, command.make_context(name, words).params


def check_fedrelay(words: list[str]) -> None:
    name, values = parsed(words)
    if values.get("engine") == "flower":  # nodes that are not there; tests/engines/flower has real ones
        return
    if values.get("engine") == "ray":  # a cluster that is not there: the run is planned instead
        kept = words[1 : words.index("--out")] if "--out" in words else words[1:]
        assert main(["plan", *kept, "-q"]) == 0
        return
    small = TINY.get(name, TINY.get(name.split()[0]))
    if name == "compare" and "--out" not in words:  # no later command reads its folder
        small = ["--dry-run", "-q"]
    elif small is not None and {"heart-disease", "table.client=hospital"} & set(words):  # hospitals are the clients
        small = [word for word in small if word not in ("--clients", "10")]
    # Some commands read run folders: they are run where an earlier command of the page has made them.
    read = values["runs"] if name == "report" else [values["folder"]] if name in ("resume", "show") else []
    if small is None or "federation/run.yaml" in " ".join(words) or not all(Path(path).exists() for path in read):
        return
    assert main([*words, *small]) == 0


def check_other(words: list[str]) -> None:
    """Programs other than ours: make and Python know their targets and files, pip our extras."""
    program = Path(words[0]).name
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(words[1:]) <= set(targets)
    elif program == "python" and words[1] == "-c":
        compile(words[2], "<page>", "exec")
    elif program == "python":
        script = ROOT / Path(*(part for part in Path(words[1]).parts if part != ".."))
        options = [word for word in words[2:] if word.startswith("--")]
        assert [option for option in options if f'"{option}"' not in script.read_text()] == []
        if script.name == "make_tables.py":  # commands below read what it writes
            subprocess.run([sys.executable, script, *words[2:]], check=True)
    elif program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        wanted = [name for word in words for found in re.findall(r"\[(.*)\]", word) for name in found.split(",")]
        assert set(wanted) <= set(extras)
    else:
        assert program in SHELL_WORDS, f"what should be checked of {program!r}?"


def shell_blocks(page: Path) -> list[Block]:
    """Shell blocks, and blocks without a language that have our commands."""
    return [
        block
        for block in blocks(page)
        if not block.skipped
        and (
            block.language == "sh"
            or (not block.language and block.text.startswith("fedrelay ") and "──" not in block.text)
        )
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if shell_blocks(page)], ids=lambda page: page.name)
def test_shell_blocks_run(page, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for block in shell_blocks(page):
        for words in commands(block.text):
            try:
                check_fedrelay(words[1:]) if words[0] == "fedrelay" else check_other(words)
            except BaseException as error:
                error.add_note(f"{block}: {shlex.join(words)}")
                raise


def test_a_wrong_command_is_noticed():
    for words in (["rum", "fedseq"], ["run", "fedseq", "--round", "x"], ["run", "fedseq", "--set", "route.loop=2"]):
        with pytest.raises(BaseException):  # noqa: B017, PT011
            check_fedrelay(words)
