"""What a broken or malicious client does to a model before it hands it on."""

from __future__ import annotations

import math

from torch import Tensor

from fedrelay.routes.overlay import Tamper


def tamper(model: Tensor, recv: Tensor, how: Tamper) -> None:
    """Change a trained model in place; `recv` is the one that the client received."""
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
            model.copy_(recv - how.factor * (model - recv))
        case "replace":  # as if all others had agreed with it
            model.copy_(recv + how.factor * (model - recv))
        case "shape":
            raise AssertionError("a model of another shape is never written anywhere")
