"""One client reconstructs the images of others from the models it receives; methods are compared at equal accuracy."""

from __future__ import annotations

from functools import cached_property

from pydantic import Field

from fedrelay.experiment.spec import Section, validate
from fedrelay.robustness.gan_attack_run import GanAttackResult, run_gan_attack
from fedrelay_reproduce.experiments.base import ComparedMethods, Values

LEVELS = (60, 70, 80)
"""Accuracies, in percent, of the received model at which methods are compared, as in the paper."""

TOLERANCE = 0.05
"""How far a model's accuracy may be from a level. Without a model that near there is no measure."""


class Attacker(Section):
    """Who attacks, and how hard."""

    client: int = Field(0, ge=0, description="the client that attacks")
    epochs: int = Field(20, ge=1, description="epochs over its own images at each hop")


class ImageRecovery(ComparedMethods):
    """Methods with an attacker."""

    others = ("attacker",)

    @cached_property
    def attacker(self) -> Attacker:
        return validate(Attacker, self.spec.get("attacker", {}), "attacker.")

    def measure(self, seed: int) -> dict[str, Values]:
        client, epochs = self.attacker.client, self.attacker.epochs
        return {
            name: distances(run_gan_attack(experiment, client, epochs=epochs))
            for name, experiment in self.with_seed(seed).items()
        }


def distances(seen: GanAttackResult) -> Values:
    """How far the attacker's images are from all clients' images, at each level of accuracy."""
    found: Values = {"visits": float(len(seen.observations))}
    for level in LEVELS:
        nearest = seen.nearest_to(level / 100, TOLERANCE)
        found[f"fid_{level}"] = nearest.fid_all if nearest is not None else None
        found[f"model_{level}"] = nearest.accuracy if nearest is not None else None
        found[f"visits_{level}"] = seen.observations.index(nearest) + 1.0 if nearest is not None else None
    return found
