"""What server optimisers have in common: the mean change of a round plays the role of a gradient.

They act on parameters; buffers take the plain mean. All arithmetic is in float64, the stored state has the type of the
model. If all routes have weight 0, model and state do not change.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.merge.base import Merge, MergeInput, MergeResult
from fedrelay.merge.mean import Weights, precise_mean, route_weights, with_trained_part

MergeState = Mapping[str, Tensor]


class ServerOptimizerBase(Merge):
    """A merge that computes the server's step from the mean change of a round."""

    weights: Weights = Field("samples", description="weight of each route: by its samples, or uniform")

    def apply(self, inputs: MergeInput) -> MergeResult:
        weights = route_weights(inputs.arrivals, self.weights)
        if sum(weights) == 0:
            return MergeResult(inputs.global_model.clone(), inputs.state)
        trained = inputs.layout.trained_size
        start = inputs.global_model[:trained].double()
        change = precise_mean([arrival.weights[:trained] for arrival in inputs.arrivals], weights) - start
        step, state = self.step_and_state(change, {name: tensor.double() for name, tensor in inputs.state.items()})
        state = {name: tensor.to(inputs.layout.dtype) for name, tensor in state.items()}
        return MergeResult(with_trained_part(inputs, start + step, weights), state)

    @abstractmethod
    def step_and_state(self, change: Tensor, state: MergeState) -> tuple[Tensor, MergeState]:
        """Return what is added to the parameters, and the state for the next merge.

        Args:
            change: The mean of the arrivals minus the global model, trained part only.
            state: What the last call returned; empty before the first merge.
        """


def stored(state: MergeState, name: str, change: Tensor, initial: float = 0.0) -> Tensor:
    """A tensor of the state; before the first merge, a tensor like `change` filled with `initial`."""
    return state[name] if name in state else torch.full_like(change, initial)
