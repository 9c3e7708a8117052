"""Other models' opinion of a batch: frozen, in evaluation mode, each asked once a batch."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from fedrelay.local.terms.base import Batch, Outputs
from fedrelay.models.features import FeatureTap
from fedrelay.models.layout import Workbench


class Judges:
    """A second workbench, on which other models are set up in turn; keeps nothing from one batch to the next."""

    def __init__(self, bench: Workbench) -> None:
        self.bench = Workbench(copy.deepcopy(bench.module), bench.layout, bench.flat.device)
        self.bench.module.eval()
        self.tap = FeatureTap(bench.module)
        self.other_tap = FeatureTap(self.bench.module)

    def batch(self, inputs: Tensor, targets: Tensor, logits: Tensor) -> Batch:
        """A batch that was just run through the model being trained."""
        opinions: dict[int, Outputs] = {}

        def judged_by(model: Tensor) -> Outputs:
            if model.data_ptr() not in opinions:
                opinions[model.data_ptr()] = self._opinion(model, inputs)
            return opinions[model.data_ptr()]

        return Batch(targets, Outputs(logits, self.tap.features), judged_by)

    @torch.no_grad()
    def _opinion(self, model: Tensor, inputs: Tensor) -> Outputs:
        self.bench.load(model)
        logits = self.bench.module(inputs)
        return Outputs(logits, self.other_tap.features)
