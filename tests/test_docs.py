"""Documentation that must not fall behind the code."""

from __future__ import annotations

import ast
import configparser
import re
import shlex
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import get_args

import pytest
import yaml
from typer.main import get_command

import fedrelay as fr
from fedrelay import errors
from fedrelay.cli.app import program
from fedrelay.data.registry import DATASETS
from fedrelay.experiment.method_catalogue import METHODS
from fedrelay.experiment.method_hyperparameters import HYPERPARAMETERS
from fedrelay.experiment.spec import DataSettings, FaultKind
from fedrelay.models.zoo import MODELS
from fedrelay.report import reference_pages
from fedrelay.report.terminal import plan

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_pages_made_from_the_code_are_up_to_date(name):
    assert (ROOT / "docs" / name).read_text() == reference_pages.PAGES[name](), (
        "run: make docs (or python -m fedrelay.report.reference_pages docs)"
    )


def test_the_program_that_makes_pages_says_what_it_wrote(tmp_path, capsys):
    reference_pages.write_pages(tmp_path)
    assert capsys.readouterr().out == "".join(f"wrote {tmp_path / name}\n" for name in reference_pages.PAGES)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(reference_pages.PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    targets = [target for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()) if "://" not in target]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert [target for target in missing if not target.startswith("reference/")] == []  # made when the site is built


def test_every_method_is_in_the_readme():
    [section] = re.findall(r"^## Methods\n.*?(?=^## )", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    missing = [f"`{name}`" for name in METHODS if f"`{name}`" not in section]
    where = "add a row to the table of routes, or the name to the table of other parts"
    assert not missing, f"README.md, section Methods, lacks {', '.join(missing)}; {where}"


def test_every_setting_that_is_tuned_is_in_the_page_about_tuning():
    rows = [
        f"| `{name}` | `{tuned.key}` | {', '.join(map(str, tuned.values))} |" for name, tuned in HYPERPARAMETERS.items()
    ]
    text = (ROOT / "docs" / "tuning.md").read_text()
    assert [row for row in rows if row not in text] == []


def test_every_data_set_partition_and_model_is_in_the_data_page():
    text = (ROOT / "docs" / "data.md").read_text()
    partitions = re.findall(r"'([\w-]+)'", str(DataSettings.model_fields["partition"].annotation))
    assert len(partitions) == 6
    assert [name for name in [*DATASETS, "synthetic", *partitions, *MODELS] if f"`{name}`" not in text] == []


def test_every_exit_code_is_in_the_page_about_the_command_line():
    page = (ROOT / "docs" / "command-line.md").read_text()
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.FedRelayError)
    ]
    codes = {kind.exit_code for kind in kinds}
    assert codes == {1, 2, 3, 4, 5, 6}
    assert [code for code in codes if f"\n| {code} |" not in page] == []


def test_every_option_of_a_node_is_in_the_guide_and_no_other():
    text = (ROOT / "docs" / "deploy.md").read_text()
    [table] = re.findall(r"\| option \| meaning \|\n(.*?)\n\n", text, re.DOTALL)
    told = {option for row in table.splitlines() for option in re.findall(r"`(--[a-z-]+)", row.split("|")[1])}
    command = get_command(program()).commands["node"]
    there = {option for each in command.params for option in (*each.opts, *each.secondary_opts) if option[:2] == "--"}
    assert told == there - {"--help"}


@pytest.mark.parametrize(
    "unit", sorted((ROOT / "examples" / "federation").glob("*.service")), ids=lambda unit: unit.name
)
def test_units_start_commands_that_there_are(unit):
    settings = configparser.ConfigParser(strict=False, interpolation=None)
    settings.optionxform = str
    settings.read(unit)
    path, name, *words = shlex.split(settings["Service"]["ExecStart"].replace("\\\n", " "))
    assert path.endswith("/bin/fedrelay")
    command = get_command(program()).commands[name]
    context = command.make_context(name, words)
    assert context.params
    codes = {int(code) for code in settings["Service"]["RestartPreventExitStatus"].split()}
    assert codes <= {errors.SpecError.exit_code, errors.DataError.exit_code}


def test_every_fault_is_in_the_page_about_faults():
    text = (ROOT / "docs" / "faults.md").read_text()
    assert [kind for kind in get_args(FaultKind) if f"`{kind}`" not in text] == []


def test_the_architecture_page_points_at_functions_that_exist():
    page = (ROOT / "docs" / "architecture.md").read_text()
    links = re.findall(r"\[`([\w.]+)`\]\(\.\./(src/[\w/]+\.py)\)", page)
    assert len(links) > 15
    for name, path in links:
        tree: ast.AST = ast.parse((ROOT / path).read_text())
        for part in name.split("."):
            found = [
                node
                for node in ast.iter_child_nodes(tree)
                if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == part
            ]
            assert found, f"{path} has no {name}"
            tree = found[0]


def public_names(kind: type) -> list[str]:
    """The hooks, attributes and fields that a class itself defines; pydantic's own are left out."""
    own = {**vars(kind), **vars(kind).get("__annotations__", {})}
    return [name for name in own if not name.startswith(("_", "model_"))]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        *((kind, public_names(kind)) for kind in (fr.Routing, fr.Merge, fr.Warmup, fr.Profile)),
        *((kind, public_names(kind)) for kind in (fr.Term, fr.AnchoredTerm, fr.LossTerm)),
        (fr.Grouping, ["assign_groups", "active_profile", "check_inputs"]),
        (fr.PlanningContext, public_names(fr.PlanningContext)),
        *((kind, [field.name for field in fields(kind)]) for kind in (fr.HopContext, fr.TrainedHop, fr.MergeInput)),
        *((kind, [field.name for field in fields(kind)]) for kind in (fr.RoundPlan, fr.Route)),
        *((kind, [field.name for field in fields(kind)]) for kind in (fr.ClientState, fr.ServerState, fr.Payload)),
        (fr.MergeResult, fr.MergeResult._fields),
        (fr.register, list(signature(fr.register).parameters)),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_everything_that_a_part_can_use_is_in_the_page_about_own_methods(kind, names):
    text = (ROOT / "docs" / "extending.md").read_text()
    assert names
    missing = [name for name in names if not re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", text)]
    assert not missing, f"docs/extending.md does not explain {', '.join(missing)} of {kind.__name__}"


def test_every_abbreviation_of_costs_is_in_the_glossary():
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    shown = [name for name in (*plan._COSTS, *plan._TIMES) if name.upper()[:2] == name[:2]]
    assert len(shown) == 6
    assert [name for name in shown if name not in glossary] == []


def test_every_promise_about_security_names_tests_that_exist():
    page = ROOT / "docs" / "security.md"
    text = page.read_text()
    agreement, _, _ = text.partition("## Who sees what")
    rows = re.findall(r"^\| \d+ \|.*$", agreement, re.MULTILINE)
    assert len(rows) >= 14
    assert [row for row in rows if "](../tests/" not in row] == []
    named = re.findall(r"\[`(test_\w+)`\]\((\S+\.py)\)", text)
    assert [name for name, file in named if f"def {name}(" not in (page.parent / file).read_text()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_in_backticks_exist(page):
    places = [ROOT, ROOT / "src" / "fedrelay", ROOT / "src" / "fedrelay_reproduce", page.parent]
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", page.read_text()))
    examples = {"merge/half_step.py", "tests/merge/test_half_step.py"}
    assert [name for name in sorted(named - examples) if not any((place / name).exists() for place in places)] == []


def test_the_cookbook_has_at_least_25_short_recipes():
    text = (ROOT / "docs" / "cookbook.md").read_text()
    recipes = re.findall(r"^### ([^\n]*)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(recipes) >= 25
    code = {title: re.findall(r"^```\w+\n(.*?)^```$", recipe, re.MULTILINE | re.DOTALL) for title, recipe in recipes}
    assert [title for title, found in code.items() if len(found) != 1] == []
    assert [title for title, [lines] in code.items() if lines.count("\n") > 20] == []


def pages_in(entries: list[object]) -> list[str]:
    """The pages of a navigation, at any depth."""
    found = []
    for entry in entries:
        inner = next(iter(entry.values())) if isinstance(entry, dict) else entry
        found += pages_in(inner) if isinstance(inner, list) else [inner]
    return found


def test_every_page_is_in_the_navigation_of_the_site_once():
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    made_by_the_build = {"reference/index.md"}
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    named = pages_in(navigation)
    assert sorted(named) == sorted(there | made_by_the_build), "add new pages of docs/ to nav in mkdocs.yml"


def slug(heading: str) -> str:
    """The anchor of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text).strip())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_headings_lead_to_one(page):
    links = re.findall(r"\]\(([^)#:\s]*)#([^)]+)\)", page.read_text())
    missing = []
    for target, anchor in links:
        file = page if not target else page.parent / target
        if file.suffix == ".md" and file.exists():
            text = re.sub(r"^```.*?^```$", "", file.read_text(), flags=re.MULTILINE | re.DOTALL)
            given = re.findall(r'<a (?:id|name)="([^"]+)"', text)
            if anchor not in {*map(slug, re.findall(r"^#+ (.*)$", text, re.MULTILINE)), *given}:
                missing.append(f"{target}#{anchor}")
    assert missing == []
