"""Finds a loss that has no value even before training. All samples of a client are read, so it is asked only when a
model has gone wrong."""

from __future__ import annotations

import math

import torch

from fedrelay.errors import DivergedError
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatModule
from fedrelay.routes.plan import Hop
from fedrelay.tasks.base import non_finite_samples

READ_AT_ONCE = 64


def refuse_untrained_loss(job: TrainingJob, flat_module: FlatModule, hop: Hop) -> None:
    """Check that the loss of the untrained model is finite on a client's samples: no learning rate mends it otherwise.

    Raises:
        DivergedError: It is not.
    """
    samples, task = job.federation.train_samples(hop.client), job.task
    flat_module.load(job.layout.flatten(job.module))
    flat_module.module.eval()
    for x, y in samples.pieces(range(samples.size), READ_AT_ONCE, 0):
        with torch.no_grad():
            outputs, targets = flat_module.outputs(flat_module.to_inputs(x)), y.to(flat_module.flat.device)
            loss = float(task.loss_of_model_outputs(outputs, targets))
        if not math.isfinite(loss):
            where = f"on client {hop.client} in round {hop.round}, even before training"
            if non_finite_samples(outputs):
                raise DivergedError(f"the outputs of the model are NaN or infinite {where}; correct the model")
            raise DivergedError(
                f"the loss of task {task.name!r} is {loss} {where}, though the outputs of the model are finite; "
                "correct the loss or the targets"
            )
