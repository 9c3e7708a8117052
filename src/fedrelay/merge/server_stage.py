"""What the server does after every merge: momentum, look-ahead, and an average for evaluation.

Papers: Y. Nesterov. A method for solving the convex programming problem with convergence rate O(1/k²). 1983, and
G. Kim, J. Kim, B. Han. Communication-Efficient Federated Learning with Accelerated Client Gradient. CVPR 2024 (FedACG)
for `lookahead`; T.-M. H. Hsu et al., FedAvgM, 2019 for `momentum`; D. Caldarola, B. Caputo, M. Ciccone. Window-based
Model Averaging Improves Generalization in Heterogeneous Federated Learning. ICCV workshops 2023 (WIMA) for
`average.window`; B. T. Polyak, A. B. Juditsky. Acceleration of Stochastic Approximation by Averaging. 1992 for averages
in general.

Rule: clients started with y, and any merge made the model m of what came back. In this order:

    momentum μ       v ← μv + (m − y), w ← y + v; otherwise w ← m
    lookahead β      the next round starts with y ← w + β(w − w_last) instead of w
    ramp             at merge t = 1, 2, … β is at most (t − 1)/(t + 2), as Nesterov's: the first changes are the longest
    average.window   the mean of the last n models w is evaluated and exported
    average.ema γ    the moving average a ← γa + (1 − γ)w is evaluated and exported; it starts with the first w

What is evaluated is w, or the average of several; an average never changes what is sent. The stage follows every merge,
those with an optimiser of their own included, and the changes that terms make to a merged model. It adds no transfer:
the server keeps one more tensor for each of momentum, look-ahead and EMA, and n for a window.

Deviations: with a mean as the merge, look-ahead is exactly what FedACG's server does, whose momentum w − w_last needs
no velocity of its own; FedACG adds a proximal term at clients (`fedacg` has both). Nesterov's β approaches 1; here it
is constant, or with `ramp` grows up to a constant. Momentum after a mean is FedAvgM with η = 1; `fedavgm` remains a
merge of its own. Only trained parameters are moved; buffers are those of the merged model, in averages their mean.
While models wait in slots, their mean is evaluated, or the average of the models that were merged before. Warm-ups have
no such stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedrelay.experiment.spec import Section
from fedrelay.merge.mean import weighted_mean
from fedrelay.models.flat_layout import FlatLayout

StageState = Mapping[str, Tensor]
"""What the server keeps from merge to merge for this stage, by name. Tensors share no memory: checkpoints hold each."""


class StageResult(NamedTuple):
    """The model that the next round starts with, and what the next call of the stage gets."""

    sent: Tensor
    state: StageState


class AverageSettings(Section):
    """The average of merged models that is evaluated."""

    window: int | None = Field(None, ge=2, description="evaluate the mean of this number of last merged models (WIMA)")
    ema: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="evaluate a moving average of merged models; the share of it that each merge keeps",
    )

    @model_validator(mode="after")
    def _one_average(self) -> Self:
        if self.window is not None and self.ema is not None:
            raise ValueError("ema: has no effect with a window; keep one")
        return self


class ServerStage(Section):
    """Momentum, look-ahead and averages, after every merge; without options it changes nothing."""

    lookahead: float = Field(
        0.0, ge=0, lt=1, description="β: rounds start with w + β(w − w_last) instead of the merged model w"
    )
    ramp: bool = Field(False, description="lookahead: at merge t it is at most (t − 1)/(t + 2); safer for large steps")
    momentum: float = Field(0.0, ge=0, lt=1, description="share of the velocity that is kept; changes add up in it")
    average: AverageSettings = Field(
        AverageSettings(), description="the average of merged models that is evaluated; default: none"
    )

    @model_validator(mode="after")
    def _ramp_needs_lookahead(self) -> Self:
        if self.ramp and not self.lookahead:
            raise ValueError("ramp: has no effect without lookahead")
        return self

    @property
    def settings_in_use(self) -> tuple[str, ...]:
        """The names of the options that change anything."""
        average = {f"average.{name}": value for name, value in self.average.model_dump().items()}
        given = {"lookahead": self.lookahead, "momentum": self.momentum, **average}
        return tuple(f"server.{name}" for name, value in given.items() if value)

    def after_merge(self, merged: Tensor, sent: Tensor, state: StageState, layout: FlatLayout) -> StageResult:
        """Return what the next round starts with.

        Args:
            merged: What the merge and the terms made of the arrivals.
            sent: The model with which the routes started.
            state: What the last call returned; empty before the first merge.
            layout: Says which part of a model is trained.
        """
        kept: dict[str, Tensor] = {}
        if self.momentum:
            merged, kept["velocity"] = self._with_velocity(merged, sent, state.get("velocity"), layout)
        if self.average.window is not None:
            last = [state[name] for name in _window(state)][1 - self.average.window :]
            kept |= {f"window-{place}": model for place, model in enumerate([*last, merged.clone()])}
        if self.average.ema is not None:
            gamma = self.average.ema
            models = [state.get("ema", merged), merged]
            kept["ema"] = weighted_mean(models, [gamma, 1 - gamma], layout)
        if not self.lookahead:
            return StageResult(merged, kept)
        beta = self.lookahead
        if self.ramp:
            merges = int(state["merges"]) if "merges" in state else 0
            kept["merges"] = torch.tensor(merges + 1)
            beta = min(beta, merges / (merges + 3))
        kept["merged"] = merged
        return StageResult(_moved_on(merged, state.get("merged", sent), beta, layout), kept)

    def has_average(self, state: StageState) -> bool:
        """Whether an average of merged models is evaluated."""
        return "ema" in state or bool(_window(state))

    def evaluated_model(self, sent: Tensor, state: StageState, layout: FlatLayout) -> Tensor:
        """The model to evaluate and to export, where the next round starts with `sent`."""
        if window := _window(state):
            return weighted_mean([state[name] for name in window], [1] * len(window), layout)
        return state.get("ema", state.get("merged", sent))

    def _with_velocity(
        self, merged: Tensor, sent: Tensor, velocity: Tensor | None, layout: FlatLayout
    ) -> tuple[Tensor, Tensor]:
        """The model after a step along the velocity, and the velocity."""
        start = sent[: layout.trained_size].double()
        change = merged[: layout.trained_size] - start
        new = change if velocity is None else self.momentum * velocity.double() + change
        return _with_trained_part(merged, start + new, layout), new.to(layout.dtype)


NO_STAGE = ServerStage()
"""The merged model is what is sent and evaluated."""


def _window(state: StageState) -> list[str]:
    """The names of the last merged models, the oldest first."""
    count = sum(name.startswith("window-") for name in state)
    return [f"window-{place}" for place in range(count)]


def _with_trained_part(model: Tensor, trained: Tensor, layout: FlatLayout) -> Tensor:
    """A new model with the given trained part, rounded to the type of the model."""
    found = model.clone()
    found[: layout.trained_size] = trained.to(layout.dtype)
    return found


def _moved_on(model: Tensor, last: Tensor, beta: float, layout: FlatLayout) -> Tensor:
    """A new model, moved on in the direction of its change from the last one."""
    new = model[: layout.trained_size].double()
    return _with_trained_part(model, new + beta * (new - last[: layout.trained_size]), layout)
