"""What every local term has in common. Terms are vector algebra on the last axis of flat tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, NamedTuple

from pydantic import Field
from torch import Tensor

from fedrelay.spec import Section


class Anchors(NamedTuple):
    """The models a term may refer to: handed to this hop, and broadcast at the start of the round."""

    recv: Tensor
    round: Tensor


class Term(Section, ABC):
    """Something added to the gradient of every step."""

    @abstractmethod
    def add_to(self, gradient: Tensor, theta: Tensor, anchors: Anchors) -> None:
        """Add this term's gradient in place. All tensors are the trained part of a model."""


class AnchoredTerm(Term):
    """A term that keeps the model close to another one."""

    anchor: Literal["recv", "round"] = Field(
        "recv", description="stay close to the model handed to this client, or to the round's global model"
    )

    def anchor_of(self, anchors: Anchors) -> Tensor:
        """The model to stay close to."""
        return anchors.recv if self.anchor == "recv" else anchors.round
