"""What server optimisers have in common: the mean change of a round is their gradient.

They act on parameters; buffers take the plain mean. All arithmetic is done in double precision, what is kept is as
precise as the model. When no route counts, model and memory stay as they are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.merge.base import Merge, Merged, MergeInput
from fedrelay.merge.mean import Weights, counts, precise_mean, with_trained

Memory = Mapping[str, Tensor]


class ServerStep(Merge):
    """A rule that turns the mean change of a round into a step of its own."""

    weights: Weights = Field("samples", description="how much each route counts")

    def apply(self, home: MergeInput) -> Merged:
        """The model moved by the rule's step, and what the rule keeps."""
        how_much = counts(home.arrivals, self.weights)
        if sum(how_much) == 0:
            return Merged(home.current.clone(), home.memory)
        trained = home.layout.trainable
        start = home.current[:trained].double()
        change = precise_mean([arrival.weights[:trained] for arrival in home.arrivals], how_much) - start
        step, memory = self.step(change, {name: tensor.double() for name, tensor in home.memory.items()})
        kept = {name: tensor.to(home.layout.dtype) for name, tensor in memory.items()}
        return Merged(with_trained(home, start + step, how_much), kept)

    @abstractmethod
    def step(self, change: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """What is added to the parameters, and what is kept."""


def remembered(memory: Memory, name: str, change: Tensor, first: float = 0.0) -> Tensor:
    """A tensor of the memory; before the first merge it is as large as the change and filled with `first`."""
    return memory[name] if name in memory else torch.full_like(change, first)
