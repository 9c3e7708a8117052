"""A client that only looks, in runs of several methods: how close its drawings come, at equal accuracy."""

from __future__ import annotations

from functools import cached_property

from pydantic import Field

from fedrelay.claims.studies.base import Measures, Quick, WithMethods
from fedrelay.experiment.spec import Comparison, Section, validate
from fedrelay.robustness.gan_attack_run import GanAttackResult, run_gan_attack

LEVELS = (60, 70, 80)
"""Accuracies in percent of the model received at which methods are compared, as in the paper."""

WITHIN = 0.05
"""So far from a level may a model's accuracy be; a spy that saw none so near says nothing there."""


class Spy(Section):
    """Who looks, and how hard."""

    client: int = Field(0, ge=0, description="the client that looks")
    epochs: int = Field(20, ge=1, description="epochs over its own images at each visit")


class SpyStudy(WithMethods, Quick):
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
            name: distances(run_gan_attack(experiment, self.spy.client, epochs=self.spy.epochs))
            for name, experiment in chosen.items()
        }


def distances(haul: GanAttackResult) -> Measures:
    """How far drawings are from all clients' images, by the models received that were about so accurate."""
    found: Measures = {"visits": float(len(haul.glimpses))}
    for level in LEVELS:
        glimpse = haul.nearest_to(level / 100, WITHIN)
        found[f"fid_{level}"] = glimpse.fid_all if glimpse is not None else None
        found[f"model_{level}"] = glimpse.accuracy if glimpse is not None else None
    return found
