"""What spies have gathered, beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedrelay.models.layout import weights_sha256
from fedrelay.report.format import NONE, count, percent
from fedrelay.report.tables import plain_table
from fedrelay.robustness.gan_attack_run import GanAttackResult

LEVELS = (0.6, 0.7, 0.8)
"""Accuracies of the received model at which spies are compared."""

Hauls = Mapping[str, Sequence[GanAttackResult]]
"""Method → what its spy has gathered, seed by seed."""

HINT = "FID of features of a small network trained here: compare within this table only; larger is a weaker attack"
HINT_OF_ONES_OWN = "FID of the features handed in; larger is a weaker attack"


def haul_facts(hauls: Hauls) -> dict[str, Any]:
    """Every visit of every spy, as `results.json` and `--json` have them."""
    return {
        method: {"spy": found[0].spy, "runs": [_run_facts(haul) for haul in found]} for method, found in hauls.items()
    }


def _run_facts(haul: GanAttackResult) -> dict[str, Any]:
    """One run: the model that came of it is that of `fedrelay run`."""
    return {
        "seed": haul.result.experiment.seed,
        "accuracy": haul.result.accuracy,
        "weights_sha256": weights_sha256(haul.result.weights),
        "visits": [glimpse.facts() for glimpse in haul.glimpses],
    }


def glimpse_table(hauls: Hauls, hint: str = HINT) -> RenderableType:
    """Distances at equal accuracies of the model received, and in the end; means over the runs that came so far."""
    table = plain_table("method", "visits", "behind others", "model", "runs", "FID previous", "FID all", numeric=True)
    for method, found in hauls.items():
        visits = (fmean(len(haul.glimpses) for haul in found), fmean(haul.behind_others for haul in found))
        reached = {f"≥ {percent(level, 0)}": [haul.first_at(level) for haul in found] for level in LEVELS}
        last = [haul.glimpses[-1] if haul.glimpses else None for haul in found]
        for label, moments in {**reached, "last": last}.items():
            glimpses = [glimpse for glimpse in moments if glimpse is not None]
            distances = ([each.fid_previous for each in glimpses], [each.fid_all for each in glimpses])
            runs = f"{len(glimpses)} of {len(found)}"
            table.add_row(method, *map(count, visits), label, runs, *map(_mean, distances))
    return Group(table, Text(), Text(f"  {hint}", style="dim"))


def _mean(distances: Iterable[float | None]) -> str:
    known = [distance for distance in distances if distance is not None]
    return f"{fmean(known):.3g}" if known else NONE


def unseen(hauls: Hauls) -> list[str]:
    """What to say of spies that were never visited."""
    return [
        f"{method}, seed {haul.result.experiment.seed}: client {haul.spy} was never visited, "
        "so that it saw nothing and has nothing to draw; take more rounds or another --spy"
        for method, found in hauls.items()
        for haul in found
        if not haul.glimpses
    ]
