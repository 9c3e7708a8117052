"""`fedrelay group`: compare ways to form groups of clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

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
    from fedrelay.grouping.grouping import Grouping
    from fedrelay.grouping.profiles import ProfileName

DEFAULT_ASSIGNERS = ("kmeans", "greedy", "icg")

_option = partial(Option, rich_help_panel="Grouping")

app = typer.Typer()


@app.command(
    epilog=examples(
        "fedrelay group --clients 100 --alpha 0",
        "fedrelay group --clients 100 --alpha 0.2 --assign greedy --distance kl --plot groups.png",
        "fedrelay group --assign greedy/kl --assign greedy/cosine --assign icg --set grouping.groups=10",
        "fedrelay group --alpha 0 --assign greedy/kl/conf --assign greedy/clf --assign kmeans/t2v --model mlp",
    )
)
@takes_settings("--data", *DATA_FLAGS, *TRAINING_FLAGS)
def group(
    assign: Annotated[
        list[str] | None,
        _option(
            metavar="NAME",
            help="random, kmeans, greedy or icg; add a distance and a profile with /: greedy/kl/conf; repeatable",
        ),
    ] = None,
    distance: Annotated[str | None, _option(help="distance for greedy, if --assign names none")] = None,
    profile: Annotated[
        str | None,
        _option(
            help="profile, if --assign names none: hist, counts, clf, conf, t2v, weights; the last four need training"
        ),
    ] = None,
    groups: Annotated[int | None, _option(help="number of groups, for icg")] = None,
    max_clients: Annotated[int | None, _option(help="largest number of clients in a group")] = None,
    min_samples: Annotated[int | None, _option(help="a group with this many samples is complete")] = None,
    plot: Annotated[
        Path | None,
        Option(metavar="FILE.png", help="draw class mixes and distances; in a folder, the file is NAME-groups.png"),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
    *,
    settings: Assignments,
) -> None:
    """Compare ways to form groups of clients.

    Random groups and single clients are always shown for comparison.
    """
    from fedrelay.experiment.grouping_comparison_inputs import profile_inputs
    from fedrelay.report.figure_files import save_figures
    from fedrelay.report.progress import watching_profiles
    from fedrelay.report.terminal.grouping_comparison import grouping_page, grouping_panels, grouping_report
    from fedrelay.report.terminal.table_shapes import facts_grid

    output = CommandOutput(quiet=quiet, json=json)
    tree = apply({}, settings)
    bounds = {"max_clients": max_clients, "min_samples": min_samples}
    given = {"profile": profile, "distance": distance, "groups": groups, **bounds}
    options = {**{name: value for name, value in given.items() if value is not None}, **_grouping_options(tree)}
    groupings = _groupings(assign or DEFAULT_ASSIGNERS, options)
    experiment = _data_experiment(
        tree, trained=any(grouping.needs_profiling_by_clients for grouping in groupings.values())
    )
    with output.showing_warnings(), watching_profiles(output.stderr) as watch:
        report = grouping_report(profile_inputs(experiment, groupings.values(), watch), groupings)
    page = [grouping_page(report)]
    if plot is not None:
        file = plot / f"{report.data}-groups.png" if plot.is_dir() else plot
        panels, across = grouping_panels(report)
        save_figures(file, panels, columns=across, width=1.2 + 1.9 * across)
        page += ["", facts_grid({"figure": str(file)})]
    output.print(*page)
    output.print_json(report.summary())


def _groupings(names: Sequence[str], options: Mapping[str, Any]) -> dict[str, Grouping]:
    """Random groups and the named groupings. Each gets the options that have an effect on it."""
    from fedrelay.grouping.grouping import Grouping, unused_option, used_options
    from fedrelay.grouping.profiles import PROFILES

    for name in options:
        if name not in Grouping.model_fields:
            raise SpecError(f"grouping.{name}: {unknown('key', name, Grouping.model_fields)}")
    groupings: dict[str, Grouping] = {}
    unused = set(options)
    for chosen in ({"assign": "random"}, *map(_parse, names)):
        asked = chosen.get("profile", options.get("profile"))
        profile: ProfileName = asked if asked in PROFILES else "hist"  # an unknown one is refused below
        effective = used_options(chosen["assign"], profile, fixed_count="groups" in options)
        common = {name: value for name, value in options.items() if name in effective}
        grouping = validate(Grouping, common | chosen, "grouping.")
        groupings[grouping.name] = grouping
        unused -= common.keys()
    for name in unused:
        raise SpecError(f"grouping.{unused_option(name, grouping.assign, grouping.profile)}")
    return groupings


def _parse(name: str) -> dict[str, Any]:
    """`greedy/kl` → `{"assign": "greedy", "distance": "kl"}`; the order of the words does not matter."""
    from fedrelay.grouping.distances import DISTANCES
    from fedrelay.grouping.grouping import OPTIONS
    from fedrelay.grouping.profiles import PROFILES

    kinds: dict[str, str] = {
        **dict.fromkeys(OPTIONS, "assign"),
        **dict.fromkeys(DISTANCES, "distance"),
        **dict.fromkeys(PROFILES, "profile"),
    }
    found: dict[str, Any] = {}
    for word in name.split("/"):
        if word not in kinds:
            raise SpecError(f"--assign {name}: {unknown('word', word, kinds)}")
        if kinds[word] in found:
            raise SpecError(f"--assign {name}: {found[kinds[word]]!r} and {word!r} exclude each other; keep one")
        found[kinds[word]] = word
    if "assign" not in found:
        raise SpecError(f"--assign {name}: needs one of {', '.join(OPTIONS)}")
    return found


def _grouping_options(tree: Tree) -> Mapping[str, Any]:
    """Take the settings of `--set grouping.…` out of the tree."""
    options = tree.pop("grouping", {})
    if not isinstance(options, Mapping):
        raise SpecError(f"grouping: must be a mapping of options, got {options!r}")
    if "assign" in options:
        raise SpecError("grouping.assign: use --assign instead")
    return options


def _data_experiment(tree: Tree, *, trained: bool) -> Experiment:
    """An experiment with data and seed and, if profiles need training, its settings; all others are refused."""
    taken = ("data", "seed", *(("model", "train", "engine") if trained else ()))
    for name in sorted(set(tree) - set(taken)):
        if name in ("model", "train", "engine"):
            raise SpecError(f"{name}: has no effect; only the profiles clf, conf, t2v and weights need training")
        raise SpecError(f"{name}: has no effect here; 'group' takes only settings of 'grouping', {', '.join(taken)}")
    train = tree.get("train", {})
    if isinstance(train, Mapping) and "epochs" in train:
        raise SpecError("train.epochs: has no effect here; set grouping.epochs")
    return validate(Experiment, {"method": "fedseq", **tree})
