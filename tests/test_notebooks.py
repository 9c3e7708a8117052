"""The notebooks in examples/ run from top to bottom, and what they end cells with is shown."""

from __future__ import annotations

import ast
import json
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def code_cells(path: Path) -> list[str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run_cell(source: str, namespace: dict[str, object]) -> object:
    """Run a cell as a notebook does, and return the value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec", dont_inherit=True), namespace)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), "<cell>", "eval", dont_inherit=True), namespace)


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["compare_methods", "follow_a_model", "own_data_and_task"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path, tmp_path, monkeypatch):
    """In this process, which takes seconds; cells that end with a value of ours show tables and figures."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
    namespace: dict[str, object] = {"__name__": "__main__"}
    values = [run_cell(cell, namespace) for cell in code_cells(path)]
    shown = [value._repr_html_() for value in values if hasattr(value, "_repr_html_")]
    assert len(shown) >= 3
    assert all("<table" in html for html in shown)
    assert sum("<img" in html for html in shown) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_in_a_kernel(path, tmp_path):
    """In a real kernel, where progress is shown below the cell."""
    if find_spec("nbclient") is None or find_spec("ipykernel") is None:
        pytest.skip("nbclient and ipykernel are not installed (make install)")
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=place).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert [output for output in outputs if output.output_type == "error"] == []
    shown = [output.data for output in outputs if output.output_type == "display_data"]
    progress = [data["text/html"] for data in shown if "text/html" in data]
    assert progress
    assert all("done in" in html for html in progress)
