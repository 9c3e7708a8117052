"""What a broken or malicious client does to a model before it sends it."""

from __future__ import annotations

import math

from torch import Tensor

from fedrelay.routes.execution_overlay import TamperedHop


def tamper(model: Tensor, received: Tensor, how: TamperedHop) -> None:
    """Change a trained model in place."""
    match how.what:
        case "nan":
            model.fill_(math.nan)
        case "inf":
            model.fill_(math.inf)
        case "zero":
            model.zero_()
        case "explode":
            model.mul_(how.factor)
        case "sign-flip":
            model.copy_(received - how.factor * (model - received))
        case "replace":  # as if all others had agreed with it
            model.copy_(received + how.factor * (model - received))
        case "shape":
            raise AssertionError("a model of another shape is never written to memory")
