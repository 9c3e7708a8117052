"""An experiment made concrete: data loaded, groups formed, model built, ready to plan any round. Nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedrelay.data.federation import Federation, PooledFederation
from fedrelay.data.open import open_federation
from fedrelay.errors import SpecError
from fedrelay.ledger import Tally, tally, total
from fedrelay.local.trainer import Job, cross_entropy
from fedrelay.models.layout import Layout
from fedrelay.models.zoo import build_model, default_model
from fedrelay.recipes import Recipe, recipe
from fedrelay.rng import torch_seed
from fedrelay.routes.base import Groups, Scene
from fedrelay.routes.plan import RoundPlan, Route
from fedrelay.spec import Experiment


@dataclass(frozen=True)
class Setting:
    """Everything that stays the same during a run."""

    experiment: Experiment
    recipe: Recipe
    federation: Federation
    scene: Scene
    module: nn.Module
    layout: Layout

    def plan(self, round: int) -> RoundPlan:
        """The plan of a round; clients without samples are passed over."""
        plan = self.recipe.route.plan(self.scene, round)
        routes = (
            Route(tuple(client for client in route.clients if self.federation.size(client)), route.start)
            for route in plan.routes
        )
        return RoundPlan(round, tuple(route for route in routes if route.clients), plan.relay)

    @property
    def payloads(self) -> Mapping[str, int]:
        """What travels on every trip: name → bytes."""
        return {"model": self.layout.bytes}

    def tally(self, plan: RoundPlan) -> Tally:
        """The transfers of a round."""
        return tally(plan, self.payloads)

    def first_weights(self) -> Tensor:
        """The model before the first round."""
        return self.layout.flatten(self.module)

    def job(self) -> Job:
        """What an engine needs."""
        wanted = self.experiment
        return Job(
            module=self.module,
            layout=self.layout,
            federation=self.federation,
            train=wanted.train,
            terms=self.recipe.terms,
            seed=wanted.seed,
            lanes=wanted.engine.lanes,
        )

    def summary(self) -> dict[str, Any]:
        """The plan in numbers, over all rounds."""
        plans = [self.plan(round) for round in range(1, self.experiment.rounds + 1)]
        transfers = total(self.tally(plan) for plan in plans)
        return {
            "clients": self.federation.clients,
            "groups": [list(group) for group in self.scene.groups],
            "payloads": dict(self.payloads),
            "parameters": self.layout.trainable,
            "rounds": len(plans),
            "transfers": transfers.counts(),
            "bytes": transfers.bytes,
            "client_updates": sum(plan.client_updates for plan in plans),
            "longest_route": max(plan.longest for plan in plans),
        }


def prepare(
    experiment: Experiment,
    *,
    federation: Federation | None = None,
    module: nn.Module | None = None,
    groups: Groups | None = None,
) -> Setting:
    """Make an experiment concrete, with data and module of the caller's own where given."""
    method = recipe(experiment)
    _check_device(experiment.train.device)
    federation = federation or open_federation(experiment.data, experiment.seed)
    if method.pools_data:
        federation = PooledFederation(federation)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(experiment.seed, "init"))
        if module is None:
            experiment = _with_model_named(experiment, federation)
            module = _zoo_model(experiment, federation)
        _check_fit(module, federation)
    if not groups and method.grouping is not None:
        groups = method.grouping.form(federation.sizes(), experiment.seed)
    scene = Scene(federation.clients, experiment.fraction, experiment.seed, groups or ())
    setting = Setting(experiment, method, federation, scene, module, Layout.of(module))
    setting.plan(1)  # impossible route options show before anything is written
    return setting


def _with_model_named(experiment: Experiment, federation: Federation) -> Experiment:
    """The experiment with the default model spelled out, so that a run folder does not depend on the default."""
    if experiment.model.name is not None:
        return experiment
    at_every_position = federation.test.y.dim() > 1
    name = "word-lstm" if at_every_position else default_model(federation.kind, federation.sample_shape)
    return experiment.model_copy(update={"model": experiment.model.model_copy(update={"name": name})})


def _zoo_model(experiment: Experiment, federation: Federation) -> nn.Module:
    wanted = experiment.model
    assert wanted.name is not None
    return build_model(
        wanted.name,
        federation.sample_shape,
        federation.classes,
        kind=federation.kind,
        hidden=wanted.hidden,
        stem=wanted.stem,
    )


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise SpecError(f"train.device: {device!r} cannot be used here ({reason})") from None


def _check_fit(module: nn.Module, federation: Federation) -> None:
    """Two test samples through the model say whether it fits the data."""
    x, y = federation.test.x[:2], federation.test.y[:2]
    mode = module.training
    try:
        with torch.no_grad():
            module.cpu().eval()
            dtype = next((p.dtype for p in module.parameters()), x.dtype)
            logits = module(x.to(dtype) if x.is_floating_point() else x)
    except Exception as error:
        raise SpecError(
            f"model: does not accept samples of shape {federation.sample_shape}: {type(error).__name__}: {error}"
        ) from None
    finally:
        module.train(mode)
    wanted = (*y.shape, federation.classes)
    if not isinstance(logits, Tensor) or tuple(logits.shape) != wanted:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise SpecError(f"model: must return one logit per class, shape {wanted} for two samples, but returned {found}")
    cross_entropy(logits, y)
