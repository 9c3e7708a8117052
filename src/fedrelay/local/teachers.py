"""Other models' opinion of a batch: frozen, in evaluation mode, each asked once a batch."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from fedrelay.local.terms.base import Batch, ModelOutputs
from fedrelay.models.features import FeatureTap
from fedrelay.models.layout import FlatModule


class Teachers:
    """A second workbench, on which other models are set up in turn; keeps nothing from one batch to the next."""

    def __init__(self, bench: FlatModule, *, features: bool) -> None:
        self.bench = FlatModule(copy.deepcopy(bench.module), bench.layout, bench.flat.device)
        self.bench.module.eval()
        self.tap = FeatureTap(bench.module) if features else None
        self.other_tap = FeatureTap(self.bench.module) if features else None

    def batch(self, inputs: Tensor, targets: Tensor, logits: Tensor) -> Batch:
        """A batch that was just run through the model being trained."""
        opinions: dict[int, ModelOutputs] = {}

        def judged_by(model: Tensor) -> ModelOutputs:
            if model.data_ptr() not in opinions:
                opinions[model.data_ptr()] = self._opinion(model, inputs)
            return opinions[model.data_ptr()]

        return Batch(targets, outputs(logits, self.tap), judged_by)

    @torch.no_grad()
    def _opinion(self, model: Tensor, inputs: Tensor) -> ModelOutputs:
        self.bench.load(model)
        logits = self.bench.module(inputs)
        return outputs(logits, self.other_tap)


def outputs(logits: Tensor, tap: FeatureTap | None) -> ModelOutputs:
    """Logits, and features where somebody looks at them."""
    return ModelOutputs(logits, tap.features if tap is not None else logits[..., :0])
