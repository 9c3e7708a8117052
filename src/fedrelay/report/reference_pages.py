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
from fedrelay.experiment.catalogue import METHODS, MethodEntry
from fedrelay.experiment.grammar import parse_method
from fedrelay.experiment.part_docs import documentation, meaning, options_of
from fedrelay.experiment.spec import SECTIONS, Comparison, Experiment, FaultKind, FaultSettings, Section, shortcuts

_METHODS = """\
# Methods

Every method is a route, a grouping, local terms and a merge, some after a warm-up; names join with `+`. Terms add up;
two names that bring the same other part, or the same term, are refused. This page is made from the text that opens each
part's file: paper, rule, deviations. Options are set as `--set NAME=VALUE`, or under the same names in YAML and Python.
"""

_SETTINGS = """\
# Settings

One experiment is one set of names: nested in YAML and Python, dotted after `--set`, or short. An unknown key, a wrong
type or an impossible value is refused with one message.

```yaml
method: fedseq            # or methods: [fedavg, fedseq] to compare
data: {name: digits, clients: 100, alpha: 0}
train: {lr: 0.05, batch_size: 8}
rounds: 60
grouping: {max_clients: 10}
```

Options of a method's parts are listed by `fedrelay methods show NAME` and in [methods.md](methods.md). Lists are
written as in YAML, in quotes that keep the shell away: `--set 'faults=[{what: dropout, rate: 0.3}]'`.
"""

_SHORT = """\
Short names, on the command line and in Python, are those that a single section below has: %s. Options of a method's
parts have none: it is `route.loops` and `terms.prox.mu`, and `alpha` and `lr` mean `data.alpha` and `train.lr` even
where a part has an option of that name."""

_HEAD = "\n| setting | default | meaning |\n|---|---|---|"


def methods_page() -> str:
    """All methods, then all parts."""
    return "\n".join([_METHODS, *_overview(), *_parts(), ""])


def settings_page() -> str:
    """All settings, section by section."""
    short = ", ".join(f"`{name}`" for name in shortcuts())
    return "\n".join([_SETTINGS, _SHORT % short, *_sections(), ""])


def _overview() -> Iterator[str]:
    yield "| method | what it does | route | grouping | terms | merge | other defaults |"
    yield "|---|---|---|---|---|---|---|"
    for name, entry in METHODS.items():
        plan = parse_method(name)
        grouping = _link(plan.grouping) if plan.grouping else "–"
        terms = ", ".join(_link(term) for term in plan.terms.values()) or "–"
        before = f"{_link(plan.warmup)}, then " if plan.warmup else ""
        parts = f"{before}{_link(plan.route)} | {grouping} | {terms} | {_link(plan.merge)}"
        yield f"| `{name}` | {entry.summary} | {parts} | {_defaults(entry)} |"


def _defaults(entry: MethodEntry) -> str:
    """The defaults that a name changes."""
    settings = (
        f"`{part}.{option}={value}`" for part, options in entry.defaults.items() for option, value in options.items()
    )
    return " ".join(settings) or "–"


def _parts() -> Iterator[str]:
    """Every part once, in the order in which the catalogue mentions them."""
    seen: dict[type[Section], None] = {}
    for name in METHODS:
        for where, part in parse_method(name).parts():
            if part not in seen:
                yield from _part(where, part, next((each for each in seen if each.__module__ == part.__module__), None))
                seen[part] = None


def _part(where: str, part: type[Section], sibling: type[Section] | None) -> Iterator[str]:
    """One part; parts of the same file are described once."""
    yield f"\n## {part.__name__}\n"
    yield f"`{where}` · `{part.__module__}`\n"
    yield f"Described with {_link(sibling)}." if sibling else documentation(part)
    if part.model_fields:
        yield _HEAD.replace("setting", "option")
        yield from _rows(options_of(part), f"{where}.")


def _sections() -> Iterator[str]:
    for name, model in SECTIONS.items():
        yield from _section(name, (model.__doc__ or "").splitlines()[0], _rows(model.model_fields, f"{name}."))
    lead = "Devices and links of the clients, for virtual time (computed in `cost/time_model.py`)."
    yield from _section("clock", lead, _rows(ClockSettings.model_fields, "clock."))
    lead = "A list; each entry says one thing that goes wrong ([faults.md](faults.md) says more)."
    kinds = ", ".join(f"`{kind}`" for kind in get_args(FaultKind))
    rest = {name: field for name, field in FaultSettings.model_fields.items() if name != "what"}
    yield from _section("faults", lead, [f"| `faults.N.what` | required | {kinds} |", *_rows(rest, "faults.N.")])
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

if __name__ == "__main__":
    for page, make in PAGES.items():
        (Path(sys.argv[1]) / page).write_text(make(), encoding="utf-8")
