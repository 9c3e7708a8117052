"""The verdicts of the first edition, with its criteria: they stay on the page beside those of today.

`first_edition.json` is what the page of that edition said, at scale small. Sentences that were wrong are corrected and
marked; `changed` says why a claim has another criterion or experiment today. Nothing there is computed again: some of
its methods' rules have changed since (control variates, FedGSP's growth, WFSL's selector, sizes of groups).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files


@dataclass(frozen=True)
class FirstVerdict:
    """What the first edition said of a claim."""

    verdict: str
    holds_if: str
    setting: str | None
    ours: tuple[str, ...]
    """Both sides of its checks: mean ± deviation over three seeds; ✗ marks those that failed, ? those in doubt."""

    reading: str | None
    changed: str | None = None
    """Why the criterion or the experiment is another one today."""


@dataclass(frozen=True)
class FirstEdition:
    """All verdicts of the first edition, by claim."""

    date: str
    claims: Mapping[int, FirstVerdict]

    @property
    def tally(self) -> str:
        """How many claims held."""
        found = Counter(each.verdict.partition(" (")[0] for each in self.claims.values())
        held, failed, open_ = (found[name] for name in ("holds", "does not hold", "inconclusive"))
        return (
            f"In the first edition ({self.date}, scale small) {held} held, {failed} did not, {open_} were inconclusive."
        )


@lru_cache(maxsize=1)
def first_edition() -> FirstEdition:
    """The first edition."""
    tree = json.loads(files(__package__).joinpath("first_edition.json").read_text(encoding="utf-8"))
    return FirstEdition(
        tree["date"],
        {int(number): FirstVerdict(**{**each, "ours": tuple(each["ours"])}) for number, each in tree["claims"].items()},
    )
