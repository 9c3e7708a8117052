"""FedNova: changes are divided by the work behind them, so that clients with more steps do not pull harder.

Paper: J. Wang, Q. Liu, H. Liang, G. Joshi, H. V. Poor. Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization. NeurIPS 2020.

Rule: w ← w − τ_eff Σ pᵢ dᵢ with dᵢ = (w − θᵢ)/‖aᵢ‖₁, pᵢ ∝ samples and τ_eff = Σ pᵢ ‖aᵢ‖₁. The vector aᵢ says how much
of every gradient is in the model at the end: τ steps of plain SGD have ‖a‖₁ = τ, with momentum ρ it is
(τ − ρ(1 − ρ^τ)/(1 − ρ))/(1 − ρ), with a proximal term (1 − (1 − ημ)^τ)/(ημ), and then τ_eff = Σ pᵢ τᵢ as in the
authors' code.

Deviations: ‖a‖₁ of a route is the sum over its hops, since momentum starts anew at each. Momentum and proximal term
together are unrolled exactly (the authors' code mixes the two rules). The proximal term counts as if its anchor were
the model received. Weight decay, clipping and a step size that shrinks between two merges leave ‖a‖₁ as it is. A route
without steps does not count. Buffers take the mean by samples.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedrelay.local.arrival import Arrival
from fedrelay.merge.base import Merge, Merged, MergeInput
from fedrelay.merge.mean import counts, with_trained


class Nova(Merge):
    """The normalised mean."""

    def apply(self, home: MergeInput) -> Merged:
        """Step by the mean change per unit of work, as far as the mean work goes."""
        trained = home.layout.trainable
        start = home.current[:trained].double()
        weights = start.clone()
        for arrival, factor in zip(home.arrivals, factors(home), strict=True):
            weights.add_(arrival.weights[:trained] - start, alpha=factor)
        return Merged(with_trained(home, weights, counts(home.arrivals, "samples")))


def factors(home: MergeInput) -> list[float]:
    """By how much each route's change is multiplied: τ_eff pᵢ / ‖aᵢ‖₁."""
    pull = home.train.lr * sum(term.pull for term in home.terms)
    works = [work(arrival, home.train.momentum, pull) for arrival in home.arrivals]
    samples = [arrival.samples if done else 0 for arrival, done in zip(home.arrivals, works, strict=True)]
    if sum(samples) == 0:
        return [0.0] * len(works)
    reach = _mean([arrival.steps for arrival in home.arrivals] if pull else works, samples)
    return [reach * size / (sum(samples) * done) if done else 0.0 for size, done in zip(samples, works, strict=True)]


def work(arrival: Arrival, momentum: float, pull: float) -> float:
    """‖a‖₁ of a route."""
    return sum(hop_work(hop.steps, momentum, pull) for hop in arrival.hops)


def hop_work(steps: int, momentum: float, pull: float) -> float:
    """‖a‖₁ of one hop; `pull` is ημ. A gradient's share of the model is followed from step to step."""
    total, share, velocity = 0.0, 0.0, 1.0
    for _ in range(steps):
        share += velocity
        total += abs(share)
        velocity = momentum * velocity - pull * share
    return total


def _mean(values: Sequence[float], counts: Sequence[float]) -> float:
    return sum(value * count for value, count in zip(values, counts, strict=True)) / sum(counts)
