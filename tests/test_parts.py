"""What a built-in part of a method must have: a description, a test of its own, described options, and a method."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from inspect import getdoc, isabstract, isclass
from pathlib import Path

import pytest

import fedrelay
from fedrelay.experiment.method_catalogue import METHODS
from fedrelay.experiment.part_docs import documentation
from fedrelay.grouping.grouping import OPTIONS, Grouping
from fedrelay.grouping.profiles import PROFILES
from fedrelay.grouping.profiles.base import Profile
from fedrelay.local.terms.base import Term
from fedrelay.merge.base import Merge
from fedrelay.routes.base import Routing
from fedrelay.warmup.base import Warmup

SOURCE = Path(fedrelay.__file__).parent
TESTS = Path(__file__).parent
ROOMS = ("routes", "local/terms", "merge", "warmup", "grouping", "grouping/profiles")
LABELS = {
    "Paper": "authors, title and year, or 'none' and why it is here",
    "Rule": "what it does, as a formula or step by step",
    "Deviations": "where it differs from the paper, or 'none'",
}


def parts() -> Iterator[type]:
    """The parts of all rooms. Base classes are in files called `base`; helper classes are abstract or no parts."""
    yield Grouping
    for room in ROOMS:
        for path in sorted((SOURCE / room).glob("*.py")):
            if path.stem not in ("__init__", "base"):
                module = import_module(f"fedrelay.{room.replace('/', '.')}.{path.stem}")
                own = (each for each in vars(module).values() if getattr(each, "__module__", "") == module.__name__)
                yield from (each for each in own if is_part(each))


def is_part(value: object) -> bool:
    return isclass(value) and issubclass(value, (Routing, Term, Merge, Warmup, Profile)) and not isabstract(value)


def used_parts() -> set[type]:
    """The parts that methods bring, those of their warm-ups, and the profiles that groupings know by name."""
    used: set[type] = set(map(type, PROFILES.values()))
    for entry in METHODS.values():
        used |= {*entry.parts().values(), entry.default_merge}
        for phase in entry.warmup().phases() if entry.warmup else ():
            used |= {type(phase.route), type(phase.merge), *map(type, phase.terms)}
    return used


PARTS = list(parts())
ASSIGNERS = [f"fedrelay.grouping.{name}" for name in OPTIONS]
"""Ways to form groups are functions, one in each file."""

FILES = sorted({*(part.__module__ for part in PARTS), *ASSIGNERS})


def file_of(module: str) -> str:
    return f"{module.removeprefix('fedrelay.').replace('.', '/')}.py"


def path_of_test(module: str) -> Path:
    """`fedrelay.routes.ring` → `tests/routes/test_ring.py`."""
    path = Path(file_of(module))
    return TESTS / path.parent / f"test_{path.name}"


def missing_test(module: str) -> str:
    """What to do where a part file has no test; empty where it has one."""
    path = path_of_test(module)
    if path.exists() and "def test_" in path.read_text():
        return ""
    return f"{file_of(module)} has no test; write {path.relative_to(TESTS.parent)}, with exact numbers on toy clients"


def missing_labels(file: str, description: str) -> list[str]:
    """What to write into the docstring of a part file."""
    return [
        f"the docstring of {file} has no paragraph '{label}: …'; add one: {what}"
        for label, what in LABELS.items()
        if not re.search(rf"^{label}s?: ", description, re.MULTILINE)
    ]


def undescribed_options(part: type) -> list[str]:
    """What to write where an option has no description."""
    fields = getattr(part, "model_fields", {})
    return [
        f"{part.__name__}.{name} has no description; write {name}: … = Field(…, description='…')"
        for name, field in fields.items()
        if not field.description
    ]


def without_method(found: Iterable[type]) -> list[str]:
    """What to do about parts that no method uses."""
    where = "add it to METHODS in experiment/method_catalogue.py (a profile: to PROFILES in grouping/profiles)"
    return [f"no method uses {part.__name__} of {part.__module__}; {where}" for part in found]


@pytest.mark.parametrize("module", FILES)
def test_every_part_file_has_a_test_of_its_own(module):
    assert not (problem := missing_test(module)), problem


@pytest.mark.parametrize("module", FILES)
def test_every_part_file_opens_with_paper_rule_and_deviations(module):
    description = getdoc(import_module(module)) or ""
    assert not (problems := missing_labels(file_of(module), description)), "\n".join(problems)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_option_of_a_part_is_described(part):
    assert not (problems := undescribed_options(part)), "\n".join(problems)


def test_no_two_parts_have_the_same_class_name():
    homes: dict[str, list[str]] = {}
    for part in PARTS:
        homes.setdefault(part.__name__, []).append(file_of(part.__module__))
    shared = [f"{' and '.join(files)} both have {name}; rename one" for name, files in homes.items() if len(files) > 1]
    assert not shared, "\n".join(shared)


def test_every_part_belongs_to_a_method():
    assert not (problems := without_method(part for part in PARTS if part not in used_parts())), "\n".join(problems)


@pytest.mark.parametrize("part", [part for part in PARTS if issubclass(part, Routing)], ids=lambda part: part.__name__)
def test_routes_leave_the_merge_to_the_merge(part):
    """`fedrelay methods show fedadam` prints a route and then FedAdam: the route must not describe another merge."""
    [rule] = re.findall(r"^Rule: .*?(?=\n\n|\Z)", documentation(part), re.MULTILINE | re.DOTALL)
    said = re.search(r"server takes|averaged|weighted", rule)
    assert not said, f"the rule of {part.__name__} describes a merge ({said[0]!r}); leave that to the merge's own file"


class Undocumented(fedrelay.Merge):
    """A part that breaks all rules."""

    share: float = 0.5

    def apply(self, inputs):
        return fedrelay.MergeResult(inputs.global_model.clone())


def test_what_is_missing_is_named():
    assert len(PARTS) > 40
    assert is_part(Undocumented)
    assert missing_test("fedrelay.merge.nowhere") == (
        "merge/nowhere.py has no test; write tests/merge/test_nowhere.py, with exact numbers on toy clients"
    )
    assert missing_labels("merge/nowhere.py", "One line.\n\nPapers: two.\n\nRule: half.") == [
        "the docstring of merge/nowhere.py has no paragraph 'Deviations: …'; "
        "add one: where it differs from the paper, or 'none'"
    ]
    assert undescribed_options(Undocumented) == [
        "Undocumented.share has no description; write share: … = Field(…, description='…')"
    ]
    assert without_method([Undocumented])[0].startswith(f"no method uses Undocumented of {__name__}; add it to METHODS")
    assert Undocumented not in used_parts()
