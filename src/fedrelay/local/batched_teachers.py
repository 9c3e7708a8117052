"""Outputs of other, frozen models for the batches of batched models in training."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrelay.local.terms.base import Batch, ModelOutputs
from fedrelay.models.batched import BatchedModel, BoundBatchedModel


class BatchedTeachers:
    """Runs the models that loss terms ask for, one for each lane, on the samples that the students are trained on.

    Teachers have the same memory layout as students, so a teacher with equal weights has outputs with equal bits.
    """

    def __init__(self, model: BatchedModel, students: Tensor) -> None:
        self.model = model
        self.students = students
        self.slots: list[_TeacherSlot] = []

    def batch(self, student: BoundBatchedModel, outputs: ModelOutputs, targets: Tensor, weights: Tensor) -> Batch:
        """The batches that were just run through the students. Each teacher is run at most once per batch."""
        ran: dict[int, tuple[_TeacherSlot, ModelOutputs]] = {}

        def outputs_of_model(models: Tensor) -> ModelOutputs:
            if models.data_ptr() not in ran:
                slot = self._slot(models, [slot for slot, _ in ran.values()])
                ran[models.data_ptr()] = slot, slot.run(student)
            return ran[models.data_ptr()][1]

        return Batch(targets, outputs, outputs_of_model, weights)

    def _slot(self, models: Tensor, taken: list[_TeacherSlot]) -> _TeacherSlot:
        """A slot with these models: that of the step before, or one whose outputs nobody needs any more."""
        for slot in self.slots:
            if slot.holds(models):
                return slot
        free = next((slot for slot in self.slots if slot not in taken), None)
        if free is None:
            free = _TeacherSlot(self.model, self.students)
            self.slots.append(free)
        free.load(models)
        return free


class _TeacherSlot:
    """Memory for one teacher of every lane."""

    def __init__(self, model: BatchedModel, students: Tensor) -> None:
        self.flat = torch.zeros_like(students)
        self.bound_for_width = model.binder(self.flat, self.flat)  # there are no gradients
        self.loaded: tuple[Tensor, int] | None = None

    def load(self, models: Tensor) -> None:
        self.flat[: len(models)] = models
        self.loaded = models, models._version  # while the tensor is held here, no other one gets its memory

    def holds(self, models: Tensor) -> bool:
        if self.loaded is None:
            return False
        held, version = self.loaded
        same_memory = held.data_ptr() == models.data_ptr() and held.stride() == models.stride()
        return same_memory and len(models) <= len(held) and models._version == version

    def run(self, student: BoundBatchedModel) -> ModelOutputs:
        lanes, _, width = student.logits.values.shape
        teacher = self.bound_for_width(width)(lanes)
        teacher.inputs.copy_(student.inputs)
        teacher.forward()
        return ModelOutputs(teacher.logits.values.transpose(1, 2), teacher.features.values)
