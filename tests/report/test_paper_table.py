from __future__ import annotations

import csv
import re

import pytest

from fedrelay.report.paper_table import Cell, PaperTable, escaped_for_latex

TABLE = PaperTable(
    "results",
    "50 % of fed_avg & co.; *: more than chance",
    ("Method", "Accuracy (%) ↑"),
    (
        (Cell("fed_avg|1"), Cell("90.1 ± 0.2", {"mean": 0.901, "std": 0.002})),
        (Cell("a&b"), Cell("91.0 ± 0.3", {"mean": 0.91, "std": 0.003}, bold=True, marked=True)),
        (Cell("=1+1"), Cell("–", {"mean": None, "std": None})),
    ),
)


def test_latex_is_a_booktabs_table():
    text = TABLE.latex()
    assert [line.strip() for line in text.splitlines()] == [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        r"\caption{50 \% of fed\_avg \& co.; *: more than chance}",
        r"\label{tab:results}",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"Method & Accuracy (\%) $\uparrow$ \\",
        r"\midrule",
        r"fed\_avg\textbar{}1 & 90.1 $\pm$ 0.2 \\",
        r"a\&b & \textbf{91.0 $\pm$ 0.3}$^{*}$ \\",
        r"=1+1 & -- \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


@pytest.mark.parametrize("text", [r"a\b{c}$d&e#f_g%h~i^j|k<l>m", "–α×±…", "-0.5 [-1.0, +2]", "100 %"])
def test_escaped_text_has_no_bare_special_character(text):
    escaped = escaped_for_latex(text)
    assert escaped.count("{") - escaped.count(r"\{") == escaped.count("}") - escaped.count(r"\}")
    assert (escaped.count("$") - escaped.count(r"\$")) % 2 == 0
    bare = re.sub(r"\\[{}$&#_%]|\\[a-z]+(\{\})?|\$[^$]*\$", "", escaped)
    assert not set(bare) & set("\\{}$&#_%~^|<>±×α")


def test_a_minus_is_a_minus_and_a_hyphen_a_hyphen():
    assert escaped_for_latex("non-iid -0.5, [-1, 2]") == "non-iid $-$0.5, [$-$1, 2]"


def test_markdown():
    assert TABLE.markdown().splitlines() == [
        r"50 % of fed\_avg & co.; \*: more than chance",
        "",
        "| Method | Accuracy (%) ↑ |",
        "| --- | ---: |",
        r"| fed\_avg\|1 | 90.1 ± 0.2 |",
        r"| a&b | **91.0 ± 0.3**\* |",
        "| =1+1 | – |",
    ]


def test_csv_has_the_numbers_behind_the_cells():
    first, _, third = csv.DictReader(TABLE.csv().splitlines())
    assert first == {"method": "fed_avg|1", "mean": "0.901", "std": "0.002"}
    assert third == {"method": "'=1+1", "mean": "", "std": ""}
