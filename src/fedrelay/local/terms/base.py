"""What every local term has in common.

Most terms are vector algebra on the last axis of flat tensors, so one line serves one model or several side by side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.experiment.spec import Section, TrainSettings
from fedrelay.local.arrival import Arrival
from fedrelay.local.hop_context import HopContext, HopOutcome
from fedrelay.local.terms.tensors import TermTensor
from fedrelay.models.features import last_linear
from fedrelay.models.layout import FlatLayout, FlatModule

Noise = Callable[[str], Tensor]
"""Purpose → standard normal numbers, as many as the model has or models side by side have, of this turn alone."""


class Term(Section, ABC):
    """Something a client does beside plain training. All tensors it sees are the trained part of a model.

    It declares its tensors: what clients keep, what the server tells, what is carried along.
    """

    tensors: ClassVar[tuple[TermTensor, ...]] = ()
    """All of them; no two terms of a method may use the same name at the same place."""

    reveals: ClassVar[bool] = False
    """Whether its baggage tells more of a client's samples than the model that is handed on."""

    stackable: ClassVar[bool] = True
    """Whether it is vector algebra alone, so that several models can be trained side by side."""

    in_warmup: ClassVar[bool] = False
    """Whether it belongs to warm-ups too: because the network it asks for cannot be trained without it, or because what
    it protects would be laid open there."""

    def adapt(self, module: nn.Module) -> nn.Module:
        """The network to train in place of the one asked for: the same, unless the term needs another form of it.

        Called once, before the layout is read; what is drawn comes from torch's global stream.
        """
        return module

    def begin(self, bench: FlatModule, visit: HopContext) -> None:
        """Change the received model on its workbench before the first step; `visit` holds whole models.

        Only asked of terms that are not stackable.
        """

    @property
    def needs_round_model(self) -> bool:
        """Whether clients look at the model of the round, which then has to reach all of them."""
        return False

    @property
    def pull(self) -> float:
        """How strongly it draws the model back to where the turn began, if it does: μ of μ(θ − a)."""
        return 0.0

    def warning(self, train: TrainSettings) -> str | None:
        """What to say of training settings that do not go well with it."""
        return None

    def add_to(self, gradient: Tensor, theta: Tensor, visit: HopContext) -> None:
        """Add this term's gradient in place, at every step."""

    def finish(self, theta: Tensor, visit: HopContext) -> None:
        """Change the model in place after the last step."""

    def veil(self, theta: Tensor, visit: HopContext, noise: Noise) -> None:
        """Change the model in place after all terms have finished, the last thing before anybody else sees it."""

    def remember(self, visit: HopContext, parting: HopOutcome) -> None:
        """Write `visit.kept` and `visit.payload` at the end of a turn."""

    def settle(self, server: Mapping[str, Tensor], arrivals: Sequence[Arrival], clients: int) -> Mapping[str, Tensor]:
        """The server's tensors after a merge; `clients` is the number of all clients."""
        return server

    def temper(self, merged: Tensor, before: Tensor, layout: FlatLayout) -> Tensor:
        """The merged model as the server keeps it: the same, unless the term softens the change from the one before."""
        return merged


@dataclass(frozen=True)
class ModelOutputs:
    """What a model makes of a batch: logits, and the features its last linear layer sees."""

    logits: Tensor
    features: Tensor


@dataclass(frozen=True)
class Batch:
    """One training step as a loss sees it."""

    targets: Tensor
    outputs: ModelOutputs
    """Of the model being trained."""

    judged_by: Callable[[Tensor], ModelOutputs]
    """What another model, given as a whole flat tensor, makes of the same inputs: frozen, in evaluation mode."""

    def counted(self, rows: Tensor) -> Tensor:
        """Logits or features as a matrix, one row for each prediction that counts: padding is left out."""
        return rows.flatten(0, -2)[self.targets.flatten() != IGNORED_LABEL]


class LossTerm(Term):
    """A term that needs outputs of models, its own and others'."""

    stackable: ClassVar[bool] = False

    @property
    def needs_features(self) -> bool:
        """Whether it looks at features, beside logits."""
        return False

    def adapt(self, module: nn.Module) -> nn.Module:
        """As it is; a module without features is refused where they are looked at."""
        if self.needs_features:
            last_linear(module)
        return module

    @abstractmethod
    def loss(self, batch: Batch, visit: HopContext) -> Tensor:
        """What is added to the loss of a batch; `visit` holds whole models."""


def overriding(terms: Sequence[Term], hook: str) -> list[Term]:
    """Those terms that do something at a hook."""
    return [term for term in terms if getattr(type(term), hook) is not getattr(Term, hook)]


class AnchoredTerm(Term):
    """A term that keeps the model close to another one."""

    anchor: Literal["recv", "round"] = Field(
        "recv", description="stay close to the model handed to this client, or to the round's global model"
    )

    @property
    def needs_round_model(self) -> bool:
        """As the anchor."""
        return self.anchor == "round"

    def anchor_of(self, visit: HopContext) -> Tensor:
        """The model to stay close to."""
        return visit.recv if self.anchor == "recv" else visit.round
