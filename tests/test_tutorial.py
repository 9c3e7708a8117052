"""The steps of the tutorial work as printed: files are written, commands run, and their output has the words shown.

Commands run with fewer rounds. A block of output follows the commands that print it. A command in a block marked
`<!-- test: fails -->` is refused.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.test_documented_code import ROOT, TUTORIAL, Block, blocks, check_other, commands, parsed

from fedrelay.cli import main
from fedrelay.experiment.method_catalogue import METHODS

pytestmark = pytest.mark.usefixtures("no_drawing")

STEPS = [page for page in TUTORIAL if page.stem[0].isdigit()]
FEDERATION = "5-real-federation"
SMALL = {
    "run": ["--rounds", "2"],
    "compare": ["--rounds", "2"],
    "plan": ["--rounds", "2"],
}
TWO_SEEDS = ["--seeds", "1,2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A reader's folder, with the files of all steps."""
    made = tmp_path_factory.mktemp("tutorial")
    for page in STEPS:
        for block in blocks(page):
            if block.title:
                (made / block.title).write_text(block.text)
    subprocess.run([sys.executable, "make_patients.py"], cwd=made, check=True)
    return made


@pytest.fixture(autouse=True)
def reader(folder, monkeypatch):
    """The reader's folder is the current one, and what the steps import or register is forgotten."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)  # small runs need no workers
    known, imported = set(METHODS), set(sys.modules)
    yield
    for name in set(METHODS) - known:
        del METHODS[name]
    for name in set(sys.modules) - imported:
        if (folder / f"{name}.py").exists():
            del sys.modules[name]


def words_of(text: str) -> set[str]:
    """The words of an output, without its numbers and their units, which differ from machine to machine."""
    return set(re.findall(r"[^\W\d_]{3,}", text))


def run_command(words: list[str], block: Block) -> None:
    """Run a command of a block in this process, with fewer rounds."""
    if words[0] == "python":
        runpy.run_path(words[1], run_name="__main__")
    elif words[0] != "fedrelay":
        check_other(words)
    else:
        several = TWO_SEEDS if "--seeds" in words or "study.yaml" in words else []
        code = main([*words[1:], *SMALL.get(words[1], []), *(several if words[1] == "compare" else [])])
        assert (code != 0) is (block.marker == "fails")


def test_there_are_six_steps_and_the_first_page_names_them():
    assert [page.stem[0] for page in STEPS] == list("123456")
    first = (STEPS[0].parent / "index.md").read_text()
    assert [page.name for page in STEPS if f"({page.name})" not in first] == []


@pytest.mark.parametrize("page", [page for page in STEPS if page.stem != FEDERATION], ids=lambda page: page.stem)
def test_step(page, capsys):
    printed, checked = "", 0
    for block in blocks(page):
        if block.language == "sh":
            for words in commands(block.text):
                try:
                    run_command(words, block)
                except BaseException as error:
                    error.add_note(f"{block}: {shlex.join(words)}")
                    raise
            printed = "".join(capsys.readouterr())
        elif block.language == "text":
            missing = words_of(block.text) - words_of(printed)
            assert not missing, f"{block}: the command no longer prints {', '.join(sorted(missing))}; run it and paste"
            checked += 1
    assert checked >= 2


def test_the_commands_of_the_step_with_a_federation_are_accepted():
    [page] = [page for page in STEPS if page.stem == FEDERATION]
    text = "".join(block.text for block in blocks(page) if block.language == "sh")
    lines = [shlex.split(line.split(" > ")[0])[1:] for line in text.splitlines() if line.startswith("fedrelay ")]
    assert [parsed(words)[0] for words in lines] == [
        "certificates", "key", "key", "superlink", "node", "node", "nodes", "run"
    ]  # fmt: skip


@pytest.mark.slow
def test_the_step_with_a_federation(folder):
    """Real processes: a SuperLink, two nodes and the server."""
    [page] = [page for page in STEPS if page.stem == FEDERATION]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    lines = ["set -e", "trap 'kill $(jobs -p) 2>/dev/null' EXIT"]
    for line in "".join(block.text for block in blocks(page) if block.language == "sh").splitlines():
        line = line.replace("9092", port).replace("--rounds 5", "--rounds 2")
        if line.startswith("make "):
            check_other([word for word in shlex.split(line) if word not in ("-C", "..")])
        elif line.startswith("fedrelay nodes "):  # a reader asks again until all are ready
            asked = f"{line} > nodes.txt && grep -q '2 of 2 are ready' nodes.txt"
            lines.append(f"for _ in $(seq 60); do if {asked}; then break; fi; sleep 1; done; cat nodes.txt")
        else:
            lines.append(line)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))  # the activated environment
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    said = done.stdout + done.stderr
    assert "client updates     4" in done.stdout, said
    shown = [block.text for block in blocks(page) if block.language == "text" and "──TLS──" not in block.text]
    assert len(shown) == 3
    missing = words_of("".join(shown)) - words_of(said)
    assert not missing, f"{page.name}: the commands no longer print {', '.join(sorted(missing))}; run them and paste"
    assert {path.name for path in Path("runs/federation").iterdir()} >= {"model.safetensors", "metrics.jsonl"}


def test_a_word_that_is_not_printed_is_noticed():
    assert words_of("  traffic   4.2 MB\n  mean of last 10") - words_of("traffic 1 kB, last 2") == {"mean"}


def test_the_tutorial_says_how_to_install():
    [first] = [page for page in STEPS if page.stem.startswith("1-")]
    text = first.read_text()
    assert "source .venv/bin/activate" in text
    assert re.search(r"^VENV := \.venv$", (ROOT / "Makefile").read_text(), re.MULTILINE)
