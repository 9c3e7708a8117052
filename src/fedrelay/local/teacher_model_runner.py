"""Outputs of other, frozen models for the batch in training."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrelay.local.terms.base import Batch, ModelOutputs
from fedrelay.models.feature_recorder import FeatureRecorder
from fedrelay.models.flat_layout import FlatModule
from fedrelay.models.nested_inputs import Inputs, logits_of


class TeacherModelRunner:
    """A second copy of the module, into which other models are loaded one at a time, in eval mode."""

    def __init__(self, student: FlatModule, *, features: bool) -> None:
        self.teacher = FlatModule(student.module, student.layout, student.flat.device, student.precision)
        self.teacher.module.eval()
        self.student_features = FeatureRecorder(student.module) if features else None
        self.teacher_features = FeatureRecorder(self.teacher.module) if features else None

    def batch(self, inputs: Inputs, targets: Tensor, logits: Tensor) -> Batch:
        """The batch that was just run through the student. Each teacher is run at most once per batch."""
        cache: dict[int, ModelOutputs] = {}

        def outputs_of_model(model: Tensor) -> ModelOutputs:
            if model.data_ptr() not in cache:
                with torch.no_grad():
                    self.teacher.load(model)
                    logits = logits_of(self.teacher.outputs(inputs))
                    cache[model.data_ptr()] = _outputs(logits, self.teacher_features)
            return cache[model.data_ptr()]

        return Batch(targets, _outputs(logits, self.student_features), outputs_of_model)


def _outputs(logits: Tensor, recorder: FeatureRecorder | None) -> ModelOutputs:
    return ModelOutputs(logits, recorder.features.to(logits.dtype) if recorder is not None else logits[..., :0])
