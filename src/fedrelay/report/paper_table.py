"""One table of a paper, and how it is written as LaTeX, Markdown and CSV."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedrelay.report.format import as_csv

MARK = "*"
"""Marks a difference to the baseline that is more than chance."""

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": r"$<$",
    ">": r"$>$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "–": "--",
    "…": r"\ldots{}",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "²": r"$^2$",
    "α": r"$\alpha$",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "μ": r"$\mu$",
}


@dataclass(frozen=True)
class Cell:
    """One cell: how it reads, and the numbers behind it, which are columns of the CSV file."""

    text: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    bold: bool = False
    marked: bool = False


@dataclass(frozen=True)
class PaperTable:
    """A table with a caption. The first columns name what a row is about, the others hold numbers."""

    name: str
    """Of the files, and of the label that LaTeX refers to."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    names: int = 1
    """How many columns are names."""

    def latex(self) -> str:
        """A `table` for the package booktabs."""
        align = "l" * self.names + "r" * (len(self.columns) - self.names)
        head = " & ".join(map(escaped_for_latex, self.columns))
        body = "".join(f"    {' & '.join(map(_latex_cell, row))} \\\\\n" for row in self.rows)
        return (
            "% needs \\usepackage{booktabs}\n"
            "\\begin{table}\n"
            "  \\centering\n"
            f"  \\caption{{{escaped_for_latex(self.caption)}}}\n"
            f"  \\label{{tab:{self.name}}}\n"
            f"  \\begin{{tabular}}{{{align}}}\n"
            "    \\toprule\n"
            f"    {head} \\\\\n"
            "    \\midrule\n"
            f"{body}"
            "    \\bottomrule\n"
            "  \\end{tabular}\n"
            "\\end{table}\n"
        )

    def markdown(self) -> str:
        """A table with its caption above it."""
        rule = ["---"] * self.names + ["---:"] * (len(self.columns) - self.names)
        lines = [[_escaped_for_markdown(each) for each in self.columns], rule]
        lines += [[_markdown_cell(cell) for cell in row] for row in self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"{_escaped_for_markdown(self.caption)}\n\n{table}\n"

    def csv(self) -> str:
        """The numbers behind the cells, unrounded; a cell without numbers is a name."""
        rows = []
        for row in self.rows:
            found: dict[str, Any] = {}
            for column, cell in zip(self.columns, row, strict=True):
                found |= cell.numbers or {column.lower(): cell.text}
            rows.append(found)
        return as_csv(rows)


def escaped_for_latex(text: str) -> str:
    r"""Text in which every character that means something to LaTeX stands for itself.

    >>> escaped_for_latex("fed_avg & 50 % ± -0.1")
    'fed\\_avg \\& 50 \\% $\\pm$ $-$0.1'
    """
    written = "".join(_LATEX.get(each, each) for each in text)
    return re.sub(r"(?<![\w.$])-(?=\d)", "$-$", written)


def _latex_cell(cell: Cell) -> str:
    text = escaped_for_latex(cell.text)
    return (f"\\textbf{{{text}}}" if cell.bold else text) + (f"$^{{{MARK}}}$" if cell.marked else "")


def _escaped_for_markdown(text: str) -> str:
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text)


def _markdown_cell(cell: Cell) -> str:
    text = _escaped_for_markdown(cell.text)
    return (f"**{text}**" if cell.bold else text) + (f"\\{MARK}" if cell.marked else "")


RENDERERS = {"tex": PaperTable.latex, "md": PaperTable.markdown, "csv": PaperTable.csv}
"""Ending of a file → what it holds."""
