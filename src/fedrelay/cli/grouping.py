"""`fedrelay group`: who would travel with whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrelay.cli.screen import Screen
from fedrelay.cli.settings import DATA_FLAGS, Assignments, Json, Quiet, Tree, apply, examples, takes_settings
from fedrelay.errors import SpecError
from fedrelay.spec import Experiment, unknown, validate

if TYPE_CHECKING:  # imports torch, which would make --help slow
    from fedrelay.grouping.base import Grouping

ALL_WAYS = ("kmeans", "greedy", "icg")

_PANEL = "Grouping"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "fedrelay group --clients 100 --alpha 0",
            "fedrelay group --clients 100 --alpha 0.2 --assign greedy --distance kl --plot groups.png",
            "fedrelay group --assign greedy/kl --assign greedy/cosine --assign icg --set grouping.groups=10",
        )
    )(group)


@takes_settings("--data", *DATA_FLAGS)
def group(
    ways: Annotated[
        list[str] | None,
        typer.Option(
            "--assign",
            metavar="WAY",
            help="random, kmeans, greedy or icg, with its distance or profile: greedy/kl, icg/counts; repeatable",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    distance: Annotated[
        str | None, typer.Option("--distance", help="for greedy ways that name none", rich_help_panel=_PANEL)
    ] = None,
    groups: Annotated[
        int | None, typer.Option("--groups", help="how many groups icg makes", rich_help_panel=_PANEL)
    ] = None,
    max_clients: Annotated[
        int | None, typer.Option("--max-clients", help="a group with so many is closed", rich_help_panel=_PANEL)
    ] = None,
    min_samples: Annotated[
        int | None, typer.Option("--min-samples", help="a group with so many is closed", rich_help_panel=_PANEL)
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE.png", help="draw class mix and distances of groups; a folder gets NAME-groups.png"
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
    *,
    settings: Assignments,
) -> None:
    """Form groups in one or several ways and compare them with random groups and single clients."""
    from fedrelay.data.open import open_federation
    from fedrelay.report.grouping import draw_groupings, grouping_page, grouping_report
    from fedrelay.report.tables import facts_grid

    screen = Screen(quiet=quiet, json=json)
    tree = apply({}, settings)
    given = {"distance": distance, "groups": groups, "max_clients": max_clients, "min_samples": min_samples}
    options = {**{name: value for name, value in given.items() if value is not None}, **_grouping_options(tree)}
    choices = _choices(ways or ALL_WAYS, options)
    experiment = _data_alone(tree)
    with screen.listening():
        report = grouping_report(open_federation(experiment.data, experiment.seed), experiment.seed, choices)
    page = [grouping_page(report)]
    if plot is not None:
        file = plot / f"{report.data}-groups.png" if plot.is_dir() else plot
        draw_groupings(report, file)
        page += ["", facts_grid({"picture": str(file)})]
    screen.show(*page)
    screen.emit(report.summary())


def _choices(ways: Sequence[str], options: Mapping[str, Any]) -> dict[str, Grouping]:
    """Random groups and the ways asked for, by name; each takes those of the options that have an effect on it."""
    from fedrelay.grouping.base import Grouping, effective_options, without_effect

    for name in options:
        if name not in Grouping.model_fields:
            raise SpecError(f"grouping.{name}: {unknown('key', name, Grouping.model_fields)}")
    choices: dict[str, Grouping] = {}
    unused = set(options)
    for way in ({"assign": "random"}, *map(_parsed, ways)):
        effective = effective_options(way["assign"], counted="groups" in options)
        common = {name: value for name, value in options.items() if name in effective}
        grouping = validate(Grouping, common | way, "grouping.")
        choices[grouping.name] = grouping
        unused -= common.keys()
    for name in unused:
        raise SpecError(f"grouping.{without_effect(name, grouping.assign)}")
    return choices


def _parsed(way: str) -> dict[str, Any]:
    """`greedy/kl` → `{"assign": "greedy", "distance": "kl"}`; the order of the words does not matter."""
    from fedrelay.grouping.base import OPTIONS
    from fedrelay.grouping.distances import DISTANCES
    from fedrelay.grouping.profiles import PROFILES

    kinds: dict[str, str] = {
        **dict.fromkeys(OPTIONS, "assign"),
        **dict.fromkeys(DISTANCES, "distance"),
        **dict.fromkeys(PROFILES, "profile"),
    }
    found: dict[str, Any] = {}
    for word in way.split("/"):
        if word not in kinds:
            raise SpecError(f"--assign {way}: {unknown('word', word, kinds)}")
        if kinds[word] in found:
            raise SpecError(f"--assign {way}: {found[kinds[word]]!r} and {word!r} cannot both be; keep one")
        found[kinds[word]] = word
    if "assign" not in found:
        raise SpecError(f"--assign {way}: needs one of {', '.join(OPTIONS)}")
    return found


def _grouping_options(tree: Tree) -> Mapping[str, Any]:
    """What `--set grouping.…` said, taken out of the settings."""
    options = tree.pop("grouping", {})
    if not isinstance(options, Mapping):
        raise SpecError(f"grouping: must be a mapping of options, got {options!r}")
    if "assign" in options:
        raise SpecError("grouping.assign: is said with --assign here")
    return options


def _data_alone(tree: Tree) -> Experiment:
    """An experiment of which only data and seed matter; anything else would have no effect."""
    others = sorted(set(tree) - {"data", "seed"})
    if others:
        raise SpecError(f"{others[0]}: has no effect here; 'group' takes settings of 'data', 'grouping' and the seed")
    return validate(Experiment, {"method": "fedseq", **tree})
