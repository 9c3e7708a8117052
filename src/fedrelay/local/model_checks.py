"""Checks, before a run starts, that the device exists and that the model fits the data."""

from __future__ import annotations

import copy

import torch
from torch import nn

from fedrelay.data.federation import Federation
from fedrelay.data.samples import Samples
from fedrelay.errors import SpecError
from fedrelay.experiment.sections import Precision
from fedrelay.models.flat_layout import TORCH_GLOBALS, frozen_parameters, trained_dtype
from fedrelay.models.nested_inputs import call_module, with_float_type
from fedrelay.tasks.base import Task


def check_device(device: str, setting: str = "train.device") -> None:
    """Raise a SpecError if the device cannot be used; `setting` is where it was given."""
    try:
        if torch.device(device).type == "meta":
            raise RuntimeError("it holds no numbers")
        torch.empty(0, device=device)
        torch.empty(0, device=device, dtype=torch.float64)
    except (RuntimeError, AssertionError, ImportError, TypeError) as error:
        reason = str(error).splitlines()[0].split(". ")[0]  # PyTorch goes on with all its backends
        if "Expected one of" in reason:
            reason = "PyTorch has no such device"
        elif "Could not run" in reason or isinstance(error, ImportError):
            reason = "this build of PyTorch has no code for it"
        elif isinstance(error, TypeError):  # Apple's GPUs
            reason = "it has no float64, in which losses are added up"
        here = ", ".join(_devices_here())
        raise SpecError(f"{setting}: {device!r} cannot be used here ({reason}); devices here: {here}") from None


def _devices_here() -> list[str]:
    """The kinds of devices that this machine and this build of PyTorch have."""
    return ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]


def check_precision(precision: Precision, device: str, weights: torch.dtype) -> None:
    """Raise a SpecError if the device cannot compute in this precision, or the weights are not float32."""
    if precision == "float32":
        return
    if weights != torch.float32:
        raise SpecError(f"train.precision: {precision!r} needs a model with float32 weights, this one has {weights}")
    try:
        one = torch.ones(1, 1, device=device)
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            supported = (one @ one).dtype == torch.bfloat16
    except RuntimeError:
        supported = False
    if not supported:
        raise SpecError(f"train.precision: the device {device!r} has no {precision}; use float32")


def example_batch(federation: Federation) -> Samples:
    """Two test samples, or zeros of the same shape if there are no test samples."""
    test = federation.test
    if test.size:
        return next(test.pieces(range(min(2, test.size)), 2, 0))
    return test.load().map(lambda values: values.new_zeros(2, *values.shape[1:]))


def check_model_fits(module: nn.Module, federation: Federation, task: Task) -> None:
    """Run two samples through the model and raise a SpecError if its outputs do not fit the task."""
    x, y = example_batch(federation)
    try:
        # Lazy modules take their shape from the first samples; all others must not be changed.
        lazy = any(isinstance(parameter, nn.UninitializedParameter) for parameter in module.parameters())
        trial = (module if lazy else copy.deepcopy(module)).cpu().eval()
        with torch.no_grad():
            outputs = call_module(trial, with_float_type(x, trained_dtype(trial, torch.float32)))
    except Exception as error:
        raise SpecError(
            f"model: does not accept samples of shape {federation.sample_shape}: {type(error).__name__}: {error}"
        ) from None
    task.check_outputs(outputs, y, federation)


def check_finite_parameters(module: nn.Module) -> None:
    """Raise a SpecError if a parameter is NaN or infinite before training."""
    for name, parameter in module.named_parameters():
        if not parameter.isfinite().all():
            raise SpecError(f"model: the parameter {name!r} has NaN or infinite values before training; correct them")


def check_frozen_parameters(module: nn.Module, federation: Federation) -> None:
    """Raise a SpecError if training changes a frozen parameter: it would not travel with the model."""
    if not frozen_parameters(module):
        return
    x = example_batch(federation).x
    trial = copy.deepcopy(module).cpu().train()
    before = [(name, each.clone()) for name, each in frozen_parameters(trial)]
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]), torch.no_grad():  # dropout draws
        try:
            call_module(trial, with_float_type(x, trained_dtype(trial, torch.float32)))
        except Exception as error:
            raise SpecError(f"model: cannot be trained: {type(error).__name__}: {error}") from None
    for (name, old), (_, new) in zip(before, frozen_parameters(trial), strict=True):
        if not torch.equal(old, new.to(old)):
            raise SpecError(
                f"model: frozen parameter {name!r} changes during training, but frozen parameters are sent only once; "
                "register it as a buffer"
            )
