"""Generates docs/methods.md and docs/settings.md from docstrings and settings, so they match the code.

python -m fedrelay.report.reference_pages docs
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import get_args

from pydantic.fields import FieldInfo

from fedrelay.cost.devices import ClockSettings
from fedrelay.experiment.method_catalogue import METHODS, MethodEntry
from fedrelay.experiment.method_grammar import ParsedMethod, parse_method
from fedrelay.experiment.part_docs import documentation, flat_options, meaning, options_of
from fedrelay.experiment.spec import SECTIONS, Comparison, Experiment, FaultKind, FaultSettings, Section, shortcuts
from fedrelay.tuning.settings import TuneSettings

_METHODS = """\
# Methods

A method has a route and a merge, and may have a grouping, local terms and a warm-up. Join names with `+` to combine
methods. A combination has any number of terms, but at most one route, grouping, merge and warm-up: two names that both
bring a merge, for example, are refused, and so are two names that bring a term of the same name. After every merge, of
any method, comes the same [ServerStage](#serverstage): look-ahead, momentum, averages. The text below opens the file of
each part: paper, rule, deviations. Set options as `--set NAME=VALUE`, or under the same names in YAML and Python.
"""

_SETTINGS = """\
# Settings

A setting has one name everywhere. `train.lr` is the key `lr` in the section `train` of a YAML file, `--set
train.lr=0.1` on the command line and `train={"lr": 0.1}` in Python. An unknown key, a wrong type or an impossible value
is refused with one message.

```yaml
method: fedseq            # or methods: [fedavg, fedseq] to compare
data: {name: digits, clients: 100, alpha: 0}
train: {lr: 0.05, batch_size: 8}
rounds: 60
grouping: {max_clients: 10}
```

`fedrelay methods show NAME` and [methods.md](methods.md) list the options of a method's parts. Write lists as in YAML,
and quote them in a shell: `--set 'faults=[{what: dropout, rate: 0.3}]'`.
"""

_SHORT = """\
## Short names

If only one section has a setting of some name, the section can be left out on the command line and in Python: `alpha`
is short for `data.alpha`. So `--set alpha=0` means `--set data.alpha=0`, and `fr.run("fedseq", alpha=0)` works too. The
most used settings are also options of the commands: `--alpha 0` means the same again. The options `--data`, `--model`
and `--engine` set `data.name`, `model.name` and `engine.name`; `--data-path` sets `data.path`. YAML files need the
section.

| section | short names |
|---|---|
%s

Options of a method's parts have no short names: write `route.loops` and `terms.prox.mu`. `alpha` and `lr` always mean
`data.alpha` and `train.lr`, even if a part has an option of that name."""

_HEAD = "\n| setting | default | meaning |\n|---|---|---|"


def methods_page() -> str:
    """All methods, then all parts."""
    return "\n".join([_METHODS, *_overview(), *_parts(), ""])


def settings_page() -> str:
    """All settings, section by section."""
    names = {path: name for name, path in shortcuts().items()}
    short = (
        (section, ", ".join(f"`{name}`" for path, name in names.items() if path.split(".")[0] == section))
        for section in SECTIONS
    )
    rows = "\n".join(f"| `{section}` | {each} |" for section, each in short if each)
    return "\n".join([_SETTINGS, _SHORT % rows, *_sections(), ""])


def _overview() -> Iterator[str]:
    yield "| method | what it does | route | grouping | terms | merge | other defaults |"
    yield "|---|---|---|---|---|---|---|"
    for name, entry in METHODS.items():
        plan = parse_method(name)
        grouping = _link(plan.grouping) if plan.grouping else "–"
        terms = ", ".join(_link(term) for term in plan.terms.values()) or "–"
        before = f"{_link(plan.warmup)}, then " if plan.warmup else ""
        parts = f"{before}{_link(plan.route)} | {grouping} | {terms} | {_link(plan.merge)}"
        yield f"| `{name}` | {entry.summary} | {parts} | {_defaults(entry, plan)} |"


def _defaults(entry: MethodEntry, plan: ParsedMethod) -> str:
    """The defaults that a name changes."""
    sampling = [f"`sampling={entry.sampling}`"] if entry.sampling != "random" else []
    training = (f"`{setting}={value}`" for setting, value in plan.train_settings().items())
    settings = (
        f"`{setting}={value}`"
        for part, options in {**entry.defaults, "server": entry.server}.items()
        for setting, value in flat_options(part, options)
    )
    return " ".join([*sampling, *training, *settings]) or "–"


def _parts() -> Iterator[str]:
    """Every part once, in the order in which the catalogue mentions them."""
    seen: dict[type[Section], None] = {}
    for name in METHODS:
        for where, part in parse_method(name).parts():
            if part not in seen:
                sibling = next((each for each in seen if each.__module__ == part.__module__), None)
                yield from part_section(where, part, sibling)
                seen[part] = None


def part_section(
    where: str, part: type[Section], sibling: type[Section] | None = None, *, heading: str = "##"
) -> Iterator[str]:
    """One part: description and options. A part of the same file as a `sibling` is described there."""
    yield f"\n{heading} {part.__name__}\n"
    yield f"`{where}` · `{part.__module__}`\n"
    yield f"Described with {_link(sibling)}." if sibling else documentation(part)
    if part.model_fields:
        yield _HEAD.replace("setting", "option")
        yield from _rows(options_of(part), f"{where}.")


def _sections() -> Iterator[str]:
    for name, model in SECTIONS.items():
        yield from _section(name, (model.__doc__ or "").splitlines()[0], _rows(options_of(model), f"{name}."))
    lead = "Devices and links of the clients, for virtual time (computed in `cost/time_model.py`)."
    yield from _section("clock", lead, _rows(ClockSettings.model_fields, "clock."))
    lead = "A list; each entry says one thing that goes wrong ([faults.md](faults.md) says more)."
    kinds = ", ".join(f"`{kind}`" for kind in get_args(FaultKind))
    rest = {name: field for name, field in FaultSettings.model_fields.items() if name != "what"}
    yield from _section("faults", lead, [f"| `faults.N.what` | required | {kinds} |", *_rows(rest, "faults.N.")])
    lead = "How `fedrelay tune` tunes methods, the same for all of them ([tuning.md](tuning.md) says more)."
    yield from _section("tune", lead, _rows(options_of(TuneSettings), "tune."))
    lead = "`method` and `seed` make one run, `methods` and `seeds` a comparison."
    fields = {**Experiment.model_fields, **Comparison.model_fields}
    own = {name: field for name, field in fields.items() if name not in (*SECTIONS, "clock", "faults")}
    yield from _section("The experiment itself", lead, _rows(own))


def _section(title: str, lead: str, rows: Iterable[str]) -> Iterator[str]:
    yield f"\n## {title}\n\n{lead}"
    yield _HEAD
    yield from rows


def _rows(fields: Mapping[str, FieldInfo], prefix: str = "") -> Iterator[str]:
    return (_row(f"{prefix}{name}", field) for name, field in fields.items())


def _row(name: str, field: FieldInfo) -> str:
    text = meaning(field).replace("|", r"\|")
    default = "required" if field.is_required() else "–" if field.default in (None, (), {}) else f"`{field.default}`"
    return f"| `{name}` | {default} | {text} |"


def _link(part: type[Section]) -> str:
    return f"[{part.__name__}](#{part.__name__.lower()})"


PAGES: dict[str, Callable[[], str]] = {"methods.md": methods_page, "settings.md": settings_page}


def write_pages(folder: Path) -> None:
    """Write all pages to a folder, and print which."""
    for name, make in PAGES.items():
        (folder / name).write_text(make(), encoding="utf-8")
        print(f"wrote {folder / name}")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
