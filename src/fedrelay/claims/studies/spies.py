"""A client that only looks, in runs of several methods: how close its drawings come, at equal accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import Field

from fedrelay.claims.studies.base import Measures, Quick, WithMethods
from fedrelay.espionage import Haul, run_with_spy
from fedrelay.spec import Comparison, Section, validate

LEVELS = (60, 70, 80)
"""Accuracies in percent of the model received at which methods are compared, as in the paper."""


class Spy(Section):
    """Who looks, and how hard."""

    client: int = Field(0, ge=0, description="the client that looks")
    epochs: int = Field(20, ge=1, description="epochs over its own images at each visit")


class Spying(WithMethods, Quick):
    """Methods with a spy; its settings are those of a comparison, and `spy`."""

    @cached_property
    def spy(self) -> Spy:
        """Who looks."""
        return validate(Spy, self.settings.get("spy", {}), "spy.")

    @cached_property
    def comparison(self) -> Comparison:
        """Without the spy."""
        return self.compared({name: value for name, value in self.settings.items() if name != "spy"})

    def measured(self, seed: int) -> dict[str, Measures]:
        """All methods, one after the other."""
        chosen = {name: experiment for (name, of), (_, experiment) in self.runs.items() if of == seed}
        return {
            name: distances(run_with_spy(experiment, self.spy.client, epochs=self.spy.epochs))
            for name, experiment in chosen.items()
        }


def distances(haul: Haul) -> Measures:
    """How far drawings are from all clients' images, by the first model received that was so accurate."""
    first: Mapping[int, Any] = {level: haul.first_at(level / 100) for level in LEVELS}
    found: Measures = {f"fid_{level}": glimpse and glimpse.fid_all for level, glimpse in first.items()}
    return {**found, "visits": float(len(haul.glimpses))}
