"""`fedrelay group`: who would travel with whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import (
    DATA_FLAGS,
    TRAINING_FLAGS,
    Assignments,
    Json,
    Quiet,
    Tree,
    apply,
    examples,
    takes_settings,
)
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Experiment, unknown, validate

if TYPE_CHECKING:  # imports torch, which would make --help slow
    from fedrelay.grouping.base import Grouping
    from fedrelay.grouping.profiles import ProfileName

ALL_WAYS = ("kmeans", "greedy", "icg")

_PANEL = "Grouping"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "fedrelay group --clients 100 --alpha 0",
            "fedrelay group --clients 100 --alpha 0.2 --assign greedy --distance kl --plot groups.png",
            "fedrelay group --assign greedy/kl --assign greedy/cosine --assign icg --set grouping.groups=10",
            "fedrelay group --alpha 0 --assign greedy/kl/conf --assign greedy/clf --assign kmeans/t2v --model mlp",
        )
    )(group)


@takes_settings("--data", *DATA_FLAGS, *TRAINING_FLAGS)
def group(
    ways: Annotated[
        list[str] | None,
        typer.Option(
            "--assign",
            metavar="WAY",
            help="random, kmeans, greedy or icg, with its distance or profile: greedy/kl/conf, icg/counts; repeatable",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    distance: Annotated[
        str | None, typer.Option("--distance", help="for greedy ways that name none", rich_help_panel=_PANEL)
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            help="for ways that name none: hist, counts, clf, conf, t2v or weights; the last four train something",
            rich_help_panel=_PANEL,
        ),
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
    from fedrelay.experiment.profile_inputs import profile_inputs
    from fedrelay.report.drawing import save_figures
    from fedrelay.report.progress import watching_profiles
    from fedrelay.report.terminal.grouping import grouping_page, grouping_panels, grouping_report
    from fedrelay.report.terminal.tables import facts_grid

    screen = CommandOutput(quiet=quiet, json=json)
    tree = apply({}, settings)
    bounds = {"max_clients": max_clients, "min_samples": min_samples}
    given = {"profile": profile, "distance": distance, "groups": groups, **bounds}
    options = {**{name: value for name, value in given.items() if value is not None}, **_grouping_options(tree)}
    choices = _choices(ways or ALL_WAYS, options)
    experiment = _without_rounds(tree, trained=any(grouping.trains for grouping in choices.values()))
    with screen.listening(), watching_profiles(screen.notes) as watch:
        report = grouping_report(profile_inputs(experiment, choices.values(), watch), choices)
    page = [grouping_page(report)]
    if plot is not None:
        file = plot / f"{report.data}-groups.png" if plot.is_dir() else plot
        panels, across = grouping_panels(report)
        save_figures(file, panels, columns=across, width=1.2 + 1.9 * across)
        page += ["", facts_grid({"figure": str(file)})]
    screen.show(*page)
    screen.emit(report.summary())


def _choices(ways: Sequence[str], options: Mapping[str, Any]) -> dict[str, Grouping]:
    """Random groups and the ways asked for, by name; each takes those of the options that have an effect on it."""
    from fedrelay.grouping.base import Grouping, effective_options, without_effect
    from fedrelay.grouping.profiles import PROFILES

    for name in options:
        if name not in Grouping.model_fields:
            raise SpecError(f"grouping.{name}: {unknown('key', name, Grouping.model_fields)}")
    choices: dict[str, Grouping] = {}
    unused = set(options)
    for way in ({"assign": "random"}, *map(_parsed, ways)):
        asked = way.get("profile", options.get("profile"))
        profile: ProfileName = asked if asked in PROFILES else "hist"  # an unknown one is refused below
        effective = effective_options(way["assign"], profile, counted="groups" in options)
        common = {name: value for name, value in options.items() if name in effective}
        grouping = validate(Grouping, common | way, "grouping.")
        choices[grouping.name] = grouping
        unused -= common.keys()
    for name in unused:
        raise SpecError(f"grouping.{without_effect(name, grouping.assign, grouping.profile)}")
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


def _without_rounds(tree: Tree, *, trained: bool) -> Experiment:
    """An experiment of which data and seed matter and, for profiles that are trained, how they are."""
    taken = ("data", "seed", *(("model", "train", "engine") if trained else ()))
    for name in sorted(set(tree) - set(taken)):
        if name in ("model", "train", "engine"):
            raise SpecError(f"{name}: has no effect here, where no profile is trained; clf, conf, t2v and weights are")
        raise SpecError(f"{name}: has no effect here; 'group' takes settings of 'grouping', {', '.join(taken)}")
    train = tree.get("train", {})
    if isinstance(train, Mapping) and "epochs" in train:
        raise SpecError("train.epochs: has no effect here; profiles are trained for grouping.epochs")
    return validate(Experiment, {"method": "fedseq", **tree})
