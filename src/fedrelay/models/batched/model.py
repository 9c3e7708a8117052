"""Several models side by side, trained as one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedrelay.models.batched.base import Activations, LaneTensors, Layer, Models, Shape, Step
from fedrelay.models.batched.chain import read_chain
from fedrelay.models.batched.linear import LinearMap
from fedrelay.models.layout import FlatLayout


@dataclass(frozen=True)
class BatchedModel:
    """The layers of a model that can be stacked."""

    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, module: nn.Module, layout: FlatLayout, shape: Shape) -> BatchedModel | None:
        """Read a module's layers for samples of a shape; None if it has others than those that can be stacked."""
        layers = read_chain(module, layout, shape)
        return cls(layers) if layers is not None else None

    @property
    def classes(self) -> int:
        """How many classes the models tell apart."""
        return self.layers[-1].entries[0].shape[0]

    @property
    def multiplications(self) -> int:
        """How many of them a forward pass takes for one sample."""
        return sum(layer.multiplications for layer in self.layers if isinstance(layer, LinearMap))

    @property
    def training_flops(self) -> float:
        """What training on one sample takes: three products a layer, but the first passes nothing back."""
        maps = [layer.multiplications for layer in self.layers if isinstance(layer, LinearMap)]
        return 2.0 * (3 * sum(maps) - maps[0])

    def bind(self, flat: Tensor, gradient: Tensor, width: int) -> BoundBatchedModel:
        """The models in `flat`, `[lanes, size]`, whose gradients go to `gradient`, for batches of a width."""
        models = Models(flat, gradient, width)
        # With the samples innermost, what is done with a few classes is done sooner.
        logits = Activations(*(flat.new_zeros(len(flat), self.classes, width) for _ in range(2)))
        place = Activations(*(part.transpose(1, 2) for part in logits))
        steps: list[Step] = []
        for layer in reversed(self.layers):
            step, place = layer.bind(models, place)
            steps.insert(0, step)
        return BoundBatchedModel(flat, gradient, tuple(steps), place.values, logits)


@dataclass(frozen=True)
class BoundBatchedModel(LaneTensors):
    """Models side by side with the memory they need, ready to be trained."""

    flat: Tensor
    gradient: Tensor
    steps: tuple[Step, ...]
    inputs: Tensor
    logits: Activations

    def load(self, x: Tensor, rows: Tensor) -> None:
        """Take rows of `x`, `[samples, values]`, as inputs: those of the first lane, then those of the second, …"""
        if self.inputs.dim() == 3:
            torch.index_select(x, 0, rows, out=self.inputs.flatten(0, 1))
        else:
            lanes, *shape, width = self.inputs.shape
            images = x.index_select(0, rows).view(lanes, width, *shape)
            self.inputs.copy_(images.movedim(1, -1))

    def fill_gradient(self, unwanted: Tensor, shares: Tensor) -> Tensor:
        """Compute all gradients of the cross-entropy on what was loaded; returns the logits `[lanes, classes, batch]`.

        `shares`, `[lanes, 1, batch]`, says how much a sample counts: 1/b in a batch of b, 0 for a place left empty.
        `unwanted`, of the logits' shape, is minus the share at the sample's class and 0 elsewhere.
        """
        for step in self.steps:
            step.forward()
        probabilities = torch.softmax(self.logits.values, dim=1)
        torch.addcmul(unwanted, probabilities, shares, out=self.logits.slopes)
        for step in self.steps[:0:-1]:
            step.fill_gradient()
            step.pass_on()
        self.steps[0].fill_gradient()
        return self.logits.values
