"""Why chains, passes, balanced groups and look-ahead help, in a model that can be computed exactly.

    .venv/bin/python benchmarks/quadratic_model.py           print the page
    .venv/bin/python benchmarks/quadratic_model.py --write   also write docs/quadratic-model.md and its picture
    .venv/bin/python benchmarks/quadratic_model.py --smoke   a few rounds and seeds

Each of 100 clients has one of ten classes and the loss ½ (w − c)ᵀ H (w − c), where the centre c and the diagonal H
belong to its class. A hop of five gradient steps is the affine map w ← c + (1 − ηH)⁵ (w − c), so nothing is drawn but
who takes part, in which order and in which group. Numbers are F(w) − F*, the loss above that of the best model, so
they show what no data set shows: how far a method is from the solution. Groups are those of FedRelay.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedrelay.grouping.icg import icg_groups

DOCS = Path(__file__).parent.parent / "docs"
CLIENTS, CLASSES, SIZE, STEPS, GROUP, GROUPS_A_ROUND = 100, 10, 30, 5, 10, 2
RATES = tuple(0.00125 * 2**step for step in range(11))
ROUNDS, SEEDS = 60, 10

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Population:
    """The centre and the curvature of every client's loss."""

    centres: Vector
    curvatures: Vector
    labels: NDArray[np.int64]

    @classmethod
    def drawn(cls, seed: int, skew: float = 1.0) -> Population:
        """Clients whose classes differ; with `skew` 0 all are alike."""
        rng = np.random.default_rng(seed)
        centres = rng.normal(size=(CLASSES, SIZE))
        curvatures = np.exp(rng.uniform(np.log(0.001), 0.0, size=(CLASSES, SIZE)))
        centres = centres.mean(axis=0) + skew * (centres - centres.mean(axis=0))
        curvatures = curvatures.mean(axis=0) + skew * (curvatures - curvatures.mean(axis=0))
        labels = np.arange(CLIENTS) % CLASSES
        return cls(centres[labels], curvatures[labels], labels)

    @property
    def solution(self) -> Vector:
        """The model with the smallest mean loss."""
        best: Vector = (self.curvatures * self.centres).sum(axis=0) / self.curvatures.sum(axis=0)
        return best

    def excess(self, model: Vector) -> float:
        """The mean loss above the smallest one."""
        return float((self.curvatures.mean(axis=0) * (model - self.solution) ** 2).sum() / 2)

    def hop(self, model: Vector, client: int, rate: float) -> Vector:
        """The model after the gradient steps of a client."""
        centre, keep = self.centres[client], (1 - rate * self.curvatures[client]) ** STEPS
        moved: Vector = centre + keep * (model - centre)
        return moved


@dataclass(frozen=True)
class Recipe:
    """What a method is made of."""

    name: str
    chains: bool = True
    passes: bool = False
    regroup: bool = False
    balanced: bool = False
    lookahead: float = 0.0
    cosine: bool = False

    def rounds(self, population: Population, rng: np.random.Generator, count: int) -> Iterator[list[list[int]]]:
        """The routes of every round. All recipes train on as many clients in a round."""
        length = GROUP if self.chains else 1
        in_round = GROUP * GROUPS_A_ROUND // length
        groups, waiting = self._groups(population, rng, length), list[list[int]]()
        for _ in range(count):
            if not self.passes:
                chosen = rng.permutation(len(groups))[:in_round]
                yield [rng.permutation(groups[each]).tolist() for each in chosen]
                continue
            if not waiting:
                groups = self._groups(population, rng, length) if self.regroup else groups
                waiting = [groups[each] for each in rng.permutation(len(groups))]
            routes, waiting = waiting[:in_round], waiting[in_round:]
            yield [rng.permutation(route).tolist() for route in routes]

    def _groups(self, population: Population, rng: np.random.Generator, length: int) -> list[list[int]]:
        if self.balanced and length > 1:
            counts = np.eye(CLASSES)[population.labels]
            return [list(group) for group in icg_groups(counts, rng, groups=CLIENTS // length)]
        return rng.permutation(CLIENTS).reshape(-1, length).tolist()

    def curve(self, population: Population, rate: float, seed: int, count: int) -> Vector:
        """The excess loss after every round."""
        rng = np.random.default_rng([seed, 1])
        merged = sent = np.zeros(SIZE)
        found = []
        for number, routes in enumerate(self.rounds(population, rng, count)):
            now = rate * (1 + np.cos(np.pi * number / count)) / 2 if self.cosine else rate
            ends = []
            for route in routes:
                model = sent
                for client in route:
                    model = population.hop(model, client, now)
                ends.append(model)
            last, merged = merged, np.mean(ends, axis=0)
            beta = min(self.lookahead, number / (number + 3))
            sent = merged + beta * (merged - last)
            found.append(population.excess(merged))
        return np.minimum(np.nan_to_num(np.array(found), nan=1e6), 1e6)


FEDAVG = Recipe("FedAvg", chains=False)
FEDSEQ = Recipe("FedSeq, random groups")
RELAY = Recipe("relay", passes=True, regroup=True, balanced=True, lookahead=0.9)
ADDED = (
    FEDAVG,
    replace(FEDAVG, name="FedAvg in passes", passes=True),
    replace(FEDAVG, name="FedAvg with look-ahead", lookahead=0.9),
    FEDSEQ,
    replace(FEDSEQ, name="FedSeq, balanced groups", balanced=True),
    replace(FEDSEQ, name="FedSeq, balanced groups in passes", balanced=True, passes=True),
    RELAY,
    replace(RELAY, name="relay with a cosine learning rate", cosine=True),
)
REMOVED = (
    replace(RELAY, name="without look-ahead", lookahead=0.0),
    replace(RELAY, name="without balance", balanced=False),
    replace(RELAY, name="without passes", passes=False, regroup=False),
    replace(RELAY, name="without new groups", regroup=False),
    replace(RELAY, name="without chains", chains=False),
)


@dataclass(frozen=True)
class Study:
    """How many rounds and seeds are computed."""

    rounds: int = ROUNDS
    seeds: int = SEEDS

    def excess(self, recipe: Recipe, rate: float, skew: float = 1.0) -> float:
        """The geometric mean over seeds of the excess loss in the last ten rounds."""
        return float(self.curve(recipe, rate, skew)[-10:].mean())

    def curve(self, recipe: Recipe, rate: float, skew: float = 1.0) -> Vector:
        """The geometric mean over seeds, round by round."""
        curves = [
            recipe.curve(Population.drawn(seed, skew), rate, seed, self.rounds) for seed in range(1, self.seeds + 1)
        ]
        mean: Vector = np.exp(np.log(np.maximum(curves, 1e-16)).mean(axis=0))
        return mean

    def best(self, recipe: Recipe, skew: float = 1.0) -> tuple[float, float]:
        """The learning rate with the smallest excess loss, and that loss."""
        found = {rate: self.excess(recipe, rate, skew) for rate in RATES}
        rate = min(found, key=lambda each: found[each])
        return rate, found[rate]


def table(study: Study, recipes: Sequence[Recipe], skew: float = 1.0) -> Iterator[str]:
    """Every recipe at its best learning rate, and at one that all have in common."""
    yield "| method | best learning rate | excess loss there | excess loss at 0.04 |"
    yield "|---|---:|---:|---:|"
    for recipe in recipes:
        rate, least = study.best(recipe, skew)
        edge = " (edge)" if rate in (RATES[0], RATES[-1]) else ""
        yield f"| {recipe.name} | {rate:.2g}{edge} | {least:.2e} | {study.excess(recipe, 0.04, skew):.2e} |"


def displacement(recipe: Recipe, rate: float, seeds: int) -> float:
    """How far one round that starts at the solution ends from it: the mean squared distance."""
    found = []
    for seed in range(1, seeds + 1):
        population = Population.drawn(seed)
        [routes] = recipe.rounds(population, np.random.default_rng([seed, 2]), 1)
        ends = []
        for route in routes:
            model = population.solution
            for client in route:
                model = population.hop(model, client, rate)
            ends.append(model)
        found.append(np.square(np.mean(ends, axis=0) - population.solution).sum())
    return float(np.mean(found))


def noise_table(study: Study) -> Iterator[str]:
    """The displacement by learning rate, and by how much it grows when the learning rate doubles."""
    rates = (0.005, 0.01, 0.02)
    yield "| one round from the solution | " + " | ".join(f"at {rate:g}" for rate in rates) + " | a doubling gives |"
    yield "|---|" + "---:|" * (len(rates) + 1)
    for recipe in (FEDAVG, FEDSEQ, ADDED[4]):
        found = [displacement(recipe, rate, 10 * study.seeds) for rate in rates]
        cells = " | ".join(f"{each:.2e}" for each in found)
        yield f"| {recipe.name} | {cells} | × {(found[-1] / found[0]) ** 0.5:.1f} |"


def page(study: Study) -> str:
    """The whole page."""
    text = f"""
        Each of {CLIENTS} clients has one of {CLASSES} classes and a quadratic loss, whose centre and curvatures belong
        to its class; {STEPS} gradient steps a hop, {GROUP * GROUPS_A_ROUND} hops a round, {study.rounds} rounds, groups
        of {GROUP}, {study.seeds} seeds. Numbers are F(w) − F*, the loss above that of the best model: the mean of the
        last ten rounds, geometric over seeds. Every method has the best of {len(RATES)} learning rates, {RATES[0]:.2g}
        to {RATES[-1]:.2g}. "(edge)" marks a best one at an end of that range."""
    parts = [
        "# A model of why relays work",
        "Made by `benchmarks/quadratic_model.py --write`. Nothing here is a result about data: it is a model in which\n"
        "every effect can be computed apart from the others. What data say is in [look-ahead.md](look-ahead.md).",
        textwrap.fill(" ".join(text.split()), 120),
        "![Excess loss by round, by learning rate, and by look-ahead](quadratic-model.png)",
        "## Ingredients one after another",
        "\n".join(table(study, ADDED)),
        "## Each ingredient removed",
        "\n".join(table(study, REMOVED)),
        "## Clients that are alike",
        "The same with clients whose losses are equal: nothing is left for balance, passes and groups to do.",
        "\n".join(table(study, (FEDAVG, FEDSEQ, RELAY), skew=0.0)),
        "## Noise",
        "\n".join(noise_table(study)),
        REASONS,
    ]
    return "\n\n".join(parts) + "\n"


REASONS = """## What the model says

A hop of s gradient steps with learning rate η is affine: with the gradient g at the solution w* and the curvature h
of its client, it takes the error e = w − w* to (1 − ηh)ˢ e − ηs g, up to terms of second order in η.

- **Chains.** A route of L hops multiplies errors by about e^(−ηsLh) instead of e^(−ηsh). With as many client updates
  in a round, models that travel move L times as far as models that are merged after one hop.
- **Balance.** At the solution a chain ends −ηs Σg away from it, where the sum is over its clients. All gradients
  together are zero, those of a random group are not, and a longer chain adds up more of them. In a group with every
  class once, the sum is zero: what is left are products of two hops, of order η². So the squared distance grows with
  η² for random groups and with η⁴ for balanced ones, as the table of noise shows. Chains alone gain little here,
  because their noise forces a small learning rate. Balance lets them use their speed.
- **Passes.** Sampling without repetition lets the gradients of all clients cancel within a pass. That halves the loss
  of FedAvg. Groups that are balanced perfectly are all alike, so passes and new groups change nothing here; with
  classes that do not fit, they would.
- **Look-ahead.** Directions with small curvature converge slowly. With β = 0.9, changes that go on in one direction
  are ten times as large in the end, and so is noise. It pays where noise is small, as with balanced groups, and gains
  next to nothing for FedAvg. Its best learning rate is smaller: tune it again.
- **Cosine.** A learning rate that falls to zero ends noise and bias. It costs nothing at the best learning rate and
  forgives one that is several times too large.

What the model leaves out: losses with several minima, batches (noise within clients), clients of different size, and
models in which what one class needs destroys what another has learned. It says nothing about them;
[drift and forgetting](drift-and-forgetting.md) were measured with networks."""


def picture(study: Study, path: Path) -> None:
    """Three panels: curves, the price of a learning rate, and look-ahead."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    curves, rates, ahead = figure.subplots(1, 3)
    for recipe in (ADDED[0], ADDED[2], ADDED[3], ADDED[4], ADDED[6], ADDED[7]):
        curves.plot(study.curve(recipe, study.best(recipe)[0]), label=recipe.name)
    for recipe in (ADDED[0], ADDED[3], ADDED[4], ADDED[5], ADDED[6]):
        rates.plot(RATES, [study.excess(recipe, rate) for rate in RATES], marker=".", label=recipe.name)
    for beta in (0.0, 0.5, 0.9):
        recipe = replace(RELAY, name=f"look-ahead {beta:g}", lookahead=beta)
        ahead.plot(RATES, [study.excess(recipe, rate) for rate in RATES], marker=".", label=recipe.name)
    for axes, title in ((curves, "at the best learning rate"), (rates, "by learning rate"), (ahead, "relay")):
        axes.set_yscale("log")
        axes.set_title(title, loc="left", fontsize=9)
        axes.set_xlabel("round" if axes is curves else "learning rate")
        axes.legend(fontsize=7, frameon=False)
    for axes in (rates, ahead):
        axes.set_xscale("log")
        axes.set_ylim(top=10)
    curves.set_ylabel("loss above the best model's")
    figure.savefig(path, dpi=150)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the page and its picture to docs/")
    parser.add_argument("--smoke", action="store_true", help="only see that it works: a few rounds and seeds")
    options = parser.parse_args()
    study = Study(12, 2) if options.smoke else Study()
    text = page(study)
    print(text)
    if options.write and not options.smoke:
        (DOCS / "quadratic-model.md").write_text(text)
        picture(study, DOCS / "quadratic-model.png")


if __name__ == "__main__":
    main()
