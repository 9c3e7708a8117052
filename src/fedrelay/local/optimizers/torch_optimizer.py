"""Any elementwise optimiser of PyTorch, by its class path: `torch.optim:NAdam`, `mylab.optim:Lion`.

It trains one model after another. Before it is used, it takes a few steps on a small tensor and on both halves of it:
if the results differ, it is not elementwise, and training all weights as one flat tensor would not be what it means.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import TrainSettings, unknown
from fedrelay.local.optimizers.base import HopOptimizer, LearningRate, Optimizer, State, StateTensor, clip_gradient
from fedrelay.user_code import import_module_of_user

SET_BY_TRAIN = ("lr", "weight_decay")
"""Arguments that come from settings of their own."""


class TorchOptimizer(Optimizer):
    """An optimiser of PyTorch and its keyword arguments."""

    batchable: ClassVar[bool] = False
    path: str
    options: Mapping[str, Any] = {}

    def state_tensors(self, train: TrainSettings) -> tuple[StateTensor, ...]:
        example = self._example_state(train)
        odd = [name for name, value in example.items() if not _is_number(value) and not _is_whole(value)]
        if odd:
            raise SpecError(
                f"train.optimizer_state: {self.path} remembers {odd[0]!r}, which is neither a number nor a tensor of "
                "the model's size; only 'reset' is possible"
            )
        return tuple(StateTensor(name=name, scalar=_is_number(value)) for name, value in example.items())

    def start_hop(
        self, train: TrainSettings, lr: LearningRate, theta: Tensor, state: State | None = None
    ) -> HopOptimizer:
        assert isinstance(lr, float)
        example = {} if state is None else self._example_state(train)
        return _TorchRun(self.build(train, lr, theta), train.clip, example, state)

    def build(self, train: TrainSettings, lr: float, theta: Tensor) -> torch.optim.Optimizer:
        """PyTorch's optimiser of a flat tensor."""
        kind = optimizer_class(self.path)
        options: dict[str, Any] = {**self.options, "lr": lr}
        if "weight_decay" in arguments_of(kind):
            options["weight_decay"] = train.weight_decay
        return kind([nn.Parameter(theta, requires_grad=False)], **options)

    def check(self, train: TrainSettings) -> None:
        """Raise a SpecError if the class or its options cannot be used."""
        known = arguments_of(optimizer_class(self.path))
        options = [name for name in known if name not in SET_BY_TRAIN]
        for name in self.options:
            if name not in options and "**" not in options:
                raise SpecError(f"train.optimizer_options.{name}: {unknown('option', name, options)}")
        if "lr" not in known and "**" not in known:
            raise SpecError(f"train.optimizer: {self.path} takes no learning rate (lr), which it must")
        if train.weight_decay and "weight_decay" not in known:
            raise SpecError(f"train.weight_decay: {self.path} has no weight decay; set train.weight_decay=0")
        start, scales = torch.linspace(0.1, 3.0, 8), torch.tensor([1.0] * 4 + [50.0] * 4)  # halves that differ
        halves = [self._take_steps(train, start[part], scales[part])[0] for part in (slice(4), slice(4, 8))]
        whole, _ = self._take_steps(train, start, scales)
        if not torch.allclose(whole, torch.cat(halves), rtol=1e-4, atol=1e-6):
            raise SpecError(
                f"train.optimizer: {self.path} is not elementwise (a tensor and its two halves get different steps), "
                "so it cannot train all weights as one flat tensor; use adam, adamw, rmsprop or sgd"
            )

    def _example_state(self, train: TrainSettings) -> Mapping[str, Any]:
        """What the optimiser remembers of a small tensor, without what is None."""
        _, optimizer = self._take_steps(train, torch.linspace(-1.0, 1.0, _EXAMPLE), torch.ones(_EXAMPLE))
        [state] = optimizer.state.values() or [{}]
        return {name: value for name, value in state.items() if value is not None}

    def _take_steps(self, train: TrainSettings, start: Tensor, scales: Tensor) -> tuple[Tensor, torch.optim.Optimizer]:
        """The weights after a few steps, and the optimiser."""
        theta = start.clone()
        try:
            optimizer = self.build(train, 0.1, theta)
            for step in (1.0, 2.0, 3.0):
                _step(optimizer, torch.sin(step * start) * scales)
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise SpecError(
                f"train.optimizer: {self.path} cannot train all weights as one flat tensor ({reason}); check "
                "train.optimizer_options, or use an elementwise optimizer such as adam"
            ) from None
        return theta, optimizer


_EXAMPLE = 8
"""Weights of an example; enough to tell a tensor of the model's size from a number."""


class _TorchRun:
    """PyTorch's optimiser during one hop.

    State that was kept comes as plain tensors; `example` has the type and shape that the optimiser itself gives it.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, clip: float | None, example: Mapping[str, Any], kept: State | None
    ) -> None:
        self.optimizer, self.clip, self.kept = optimizer, clip, kept or {}
        if any(bool(tensor.any()) for tensor in self.kept.values()):  # all zeros: no step so far
            self.optimizer.state[_parameter(optimizer)] = {
                name: _like_example(tensor, example[name]) for name, tensor in self.kept.items()
            }

    @property
    def state(self) -> State:
        found = self.optimizer.state[_parameter(self.optimizer)]
        return {
            name: torch.as_tensor(found[name], dtype=tensor.dtype, device=tensor.device).reshape(tensor.shape)
            if name in found
            else tensor
            for name, tensor in self.kept.items()
        }

    def step(self, theta: Tensor, gradient: Tensor) -> None:
        if self.clip:
            clip_gradient(gradient, self.clip)
        _step(self.optimizer, gradient)

    def snapshot(self) -> Mapping[str, Any]:
        [group] = self.optimizer.param_groups
        settings = {name: value for name, value in group.items() if name != "params"}
        return {"state": dict(self.optimizer.state[_parameter(self.optimizer)]), "settings": settings}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        parameter = _parameter(self.optimizer)
        self.optimizer.param_groups[0].update(snapshot["settings"])
        # Not with load_state_dict, which converts tensors to the type of the weights.
        self.optimizer.state[parameter] = {
            name: value.to(parameter.device) if isinstance(value, Tensor) and value.dim() else value
            for name, value in snapshot["state"].items()
        }


def _parameter(optimizer: torch.optim.Optimizer) -> Tensor:
    found: Tensor = optimizer.param_groups[0]["params"][0]
    return found


def _step(optimizer: torch.optim.Optimizer, gradient: Tensor) -> None:
    _parameter(optimizer).grad = gradient
    optimizer.step()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, Tensor) and value.numel() == 1)


def _is_whole(value: object) -> bool:
    return isinstance(value, Tensor) and value.shape == (_EXAMPLE,)


def _like_example(kept: Tensor, example: Any) -> Any:
    if not isinstance(example, Tensor):
        return type(example)(kept.item())
    shape = kept.shape if _is_whole(example) else example.shape
    return kept.to(example.dtype if not _is_whole(example) else kept.dtype).reshape(shape).clone()


@lru_cache
def optimizer_class(path: str) -> type[torch.optim.Optimizer]:
    """The class that `MODULE:CLASS` names.

    Raises:
        SpecError: There is no such class, or it is no optimiser of PyTorch.
    """
    module, _, name = path.partition(":")
    kind = getattr(import_module_of_user(module, "train.optimizer"), name, None)
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
        got = "has no such class" if kind is None else "is not a subclass of torch.optim.Optimizer"
        what = module if kind is None else path
        raise SpecError(f"train.optimizer: {path}: {what} {got}")
    return kind


def arguments_of(kind: type[torch.optim.Optimizer]) -> list[str]:
    """The keyword arguments of an optimiser besides its parameters; `**` if it takes any."""
    parameters = list(inspect.signature(kind).parameters.values())[1:]
    return ["**" if each.kind is each.VAR_KEYWORD else each.name for each in parameters]
