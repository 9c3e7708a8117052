"""From settings to the optimiser of a job."""

from __future__ import annotations

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import TrainSettings, validate
from fedrelay.local.optimizers.adam import Adam, AdamW
from fedrelay.local.optimizers.base import Optimizer
from fedrelay.local.optimizers.rmsprop import RmsProp
from fedrelay.local.optimizers.sgd import Sgd
from fedrelay.local.optimizers.torch_optimizer import TorchOptimizer
from fedrelay.user_code import is_code_reference

OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": Sgd, "adam": Adam, "adamw": AdamW, "rmsprop": RmsProp}


def build_optimizer(train: TrainSettings) -> Optimizer:
    """The optimiser that the settings name, with its options checked.

    Args:
        train: The settings of `train`.

    Raises:
        SpecError: An option is unknown or not valid, or the class cannot train a flat tensor.

    Example:
        >>> from fedrelay.experiment.spec import TrainSettings
        >>> build_optimizer(TrainSettings(optimizer="adam", optimizer_options={"eps": 1e-6}))
        Adam(betas=(0.9, 0.999), eps=1e-06)
    """
    options = train.optimizer_options
    for name in ("lr", "weight_decay", "momentum"):
        if name in options and (name != "momentum" or train.optimizer == "sgd"):
            raise SpecError(f"train.optimizer_options.{name}: is a setting of its own; use train.{name}")
    if not is_code_reference(train.optimizer):
        return validate(OPTIMIZERS[train.optimizer], options, "train.optimizer_options.")
    chosen = TorchOptimizer(path=train.optimizer, options=options)
    chosen.check(train)
    return chosen
