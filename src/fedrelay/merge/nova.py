"""FedNova: each change is divided by the local work behind it, so that clients with more steps do not dominate.

Paper: J. Wang, Q. Liu, H. Liang, G. Joshi, H. V. Poor. Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization. NeurIPS 2020.

Rule: w ← w − τ_eff Σ pᵢ dᵢ with dᵢ = (w − θᵢ)/‖aᵢ‖₁, pᵢ ∝ samples and τ_eff = Σ pᵢ ‖aᵢ‖₁. The vector aᵢ holds the
share of each gradient in the final model. τ steps of plain SGD have ‖a‖₁ = τ; with momentum ρ it is
(τ − ρ(1 − ρ^τ)/(1 − ρ))/(1 − ρ); with a proximal term it is (1 − (1 − ημ)^τ)/(ημ), and τ_eff = Σ pᵢ τᵢ as in the
authors' code.

Deviations: ‖a‖₁ of a route is the sum over its hops, because momentum is reset at each hop. Hops whose learning rate
differs from that of the round count in proportion to it: with `train.chain_schedule`, and with `train.schedule` on
routes that went on over several rounds. Momentum and proximal term together are unrolled exactly (the authors' code
mixes the two rules). The proximal term is treated as if its anchor were the received model. Weight decay and clipping
do not change ‖a‖₁. Other optimisers than SGD are refused: their ‖a‖₁ depends on the gradients. A route without steps
has weight 0. Buffers take the mean weighted by samples.
"""

from __future__ import annotations

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import TrainSettings
from fedrelay.merge.base import Merge, MergeInput, MergeResult
from fedrelay.merge.mean import route_weights, with_trained_part
from fedrelay.routes.arrival import Arrival


class Nova(Merge):
    """The mean of normalised changes."""

    def check_train_settings(self, train: TrainSettings) -> None:
        if train.optimizer != "sgd":
            raise SpecError(
                "train.optimizer: FedNova divides each change by the work of its SGD steps, which "
                f"{train.optimizer!r} does not take; use sgd"
            )
        if train.optimizer_state != "reset":
            raise SpecError(
                "train.optimizer_state: FedNova counts the momentum of each hop from its first step; use 'reset'"
            )

    def apply(self, inputs: MergeInput) -> MergeResult:
        trained = inputs.layout.trained_size
        start = inputs.global_model[:trained].double()
        weights = start.clone()
        for arrival, factor in zip(inputs.arrivals, change_factors(inputs), strict=True):
            weights.add_(arrival.weights[:trained] - start, alpha=factor)
        return MergeResult(with_trained_part(inputs, weights, route_weights(inputs.arrivals, "samples")))


def change_factors(inputs: MergeInput) -> list[float]:
    """The factor of each route's change: τ_eff pᵢ / ‖aᵢ‖₁."""
    strength, lr = sum(term.proximal_strength_for_merge for term in inputs.terms), inputs.train.lr
    norms = [route_norm(arrival, lr, inputs.train.momentum, strength) for arrival in inputs.arrivals]
    samples = [arrival.samples if norm else 0 for arrival, norm in zip(inputs.arrivals, norms, strict=True)]
    if sum(samples) == 0:
        return [0.0] * len(norms)
    steps = [route_norm(arrival, lr, 0.0, 0.0) for arrival in inputs.arrivals] if strength else norms
    effective_steps = sum(each * size for each, size in zip(steps, samples, strict=True)) / sum(samples)
    return [
        effective_steps * n / (sum(samples) * norm) if norm else 0.0 for n, norm in zip(samples, norms, strict=True)
    ]


def route_norm(arrival: Arrival, lr: float, momentum: float, strength: float) -> float:
    """‖a‖₁ of a route, in steps of the learning rate `lr`. `strength` is μ."""
    rates = [(hop.steps, lr if hop.lr is None else hop.lr) for hop in arrival.hops]
    return sum(rate / lr * hop_norm(steps, momentum, rate * strength) for steps, rate in rates)


def hop_norm(steps: int, momentum: float, pull: float) -> float:
    """‖a‖₁ of one hop. `pull` is ημ. Follows the share of one gradient in the model from step to step."""
    total, share, velocity = 0.0, 0.0, 1.0
    for _ in range(steps):
        share += velocity
        total += abs(share)
        velocity = momentum * velocity - pull * share
    return total
