"""The state of a hop between two of its steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrelay.local.hop_context import HopContext
from fedrelay.local.hop_watcher import Snapshot
from fedrelay.local.optimizers.base import HopOptimizer
from fedrelay.models.flat_layout import FlatModule


@dataclass(frozen=True)
class HopState:
    """Everything that changes from step to step."""

    model: FlatModule
    optimizer: HopOptimizer
    loss_sum: Tensor
    context: HopContext
    last_gradient: Tensor | None
    """Where terms move the model before the gradient: the last one."""

    def snapshot(self, steps: int) -> Snapshot:
        """The state after some steps."""
        return {
            "steps": steps,
            "model": self.model.collect(),
            "private_buffers": self.model.private_buffers(),
            "optimizer": self.optimizer.snapshot(),
            "loss_sum": self.loss_sum,
            "client_state": dict(self.context.new_client_state),
            "payload": dict(self.context.payload),
            "last_gradient": self.last_gradient,
            "random": _random_state(self.model.flat.device),
        }

    def restore(self, snapshot: Snapshot | None) -> int:
        """Take over a snapshot, if there is one. Returns the steps that are done."""
        if snapshot is None:
            return 0
        self.model.load(snapshot["model"])
        self.model.set_private_buffers(snapshot["private_buffers"])
        self.optimizer.restore(snapshot["optimizer"])
        self.loss_sum.copy_(snapshot["loss_sum"])
        for name, tensor in self.context.new_client_state.items():
            tensor.copy_(snapshot["client_state"][name])
        for name, tensor in self.context.payload.items():
            tensor.copy_(snapshot["payload"][name])
        if self.last_gradient is not None:
            self.last_gradient.copy_(snapshot["last_gradient"])
        _set_random_state(self.model.flat.device, snapshot["random"])
        return int(snapshot["steps"])


def _random_state(device: torch.device) -> list[Tensor]:
    """The generators that dropout and hooks draw from: that of the CPU, and that of the device."""
    found = [torch.get_rng_state()]
    if device.type == "cuda":
        found.append(torch.cuda.get_rng_state(device))
    return found


def _set_random_state(device: torch.device, states: list[Tensor]) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
