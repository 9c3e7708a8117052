"""The gradient of a step at another model, to which terms move; for one model and for batched models alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

from fedrelay.local.terms.base import Term, call_in_place

Loss = TypeVar("Loss")


def gradient_at_moved_model(
    moves: Sequence[Term], theta: Tensor, gradient: Tensor, last: Tensor, backward: Callable[[], Loss]
) -> Loss:
    """Compute the gradient where terms have moved the model, which comes back.

    Args:
        moves: The terms with `move_before_gradient`.
        theta: The model, or several batched models.
        gradient: Where `backward` writes the gradient.
        last: The gradient of the last step, which becomes that of this step.
        backward: Computes the gradient at `theta`.

    Returns:
        What `backward` returned at the model where the gradient is computed.
    """
    here = theta.clone()
    for term in moves:
        if term.gradients_per_step == 2:
            backward()
            last.copy_(gradient)
        call_in_place(term.move_before_gradient, theta, last)
    loss = backward()
    last.copy_(gradient)
    theta.copy_(here)
    return loss
