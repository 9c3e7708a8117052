"""An experiment made concrete: data loaded, groups formed, model built, ready to plan any round. Nothing is trained."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedrelay.data.federation import Federation, PooledFederation
from fedrelay.data.open import open_federation
from fedrelay.errors import SpecError
from fedrelay.grouping.profiles import Evidence
from fedrelay.ledger import Tally, tally
from fedrelay.local.trainer import Job, cross_entropy
from fedrelay.models.layout import TORCH_GLOBALS, Layout
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
            Route(tuple(client for client in route.clients if self.federation.size(client))) for route in plan.routes
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
        """What is known before the first round, and what that round will cost."""
        return {
            "clients": self.federation.clients,
            "groups": [list(group) for group in self.scene.groups],
            "payloads": dict(self.payloads),
            "parameters": self.layout.trainable,
            "first_round": self.cost([self.plan(1)]),
        }

    def cost(self, plans: Iterable[RoundPlan]) -> dict[str, Any]:
        """What rounds cost, before anything is trained."""
        rounds = updates = longest = 0
        transfers = Tally()
        for plan in plans:
            rounds, updates, longest = rounds + 1, updates + plan.client_updates, max(longest, plan.longest)
            transfers += self.tally(plan)
        return {
            "rounds": rounds,
            "client_updates": updates,
            "longest_route": longest,
            "transfers": transfers.counts(),
            "bytes": transfers.bytes,
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
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(experiment.seed, "init"))
        experiment = _with_full_paths(experiment)
        if module is None:
            experiment = _with_model_named(experiment, federation)
            module = _zoo_model(experiment, federation)
        _check_fit(module, federation)
    if method.grouping is None:
        groups = ()
    elif groups is None:
        groups = method.grouping.form(Evidence(federation, experiment.seed))
    scene = Scene(federation.clients, experiment.fraction, experiment.seed, groups)
    setting = Setting(experiment, method, federation, scene, module, Layout.of(module))
    setting.plan(1)  # impossible route options show before anything is written
    return setting


def _with_full_paths(experiment: Experiment) -> Experiment:
    """The experiment with paths that mean the same in every working directory, so that a run can be resumed in any."""
    data = experiment.data
    name = str(Path(data.name).resolve()) if data.name.endswith(".npz") else data.name
    path = data.path.resolve() if data.path is not None else None
    return experiment.model_copy(update={"data": data.model_copy(update={"name": name, "path": path})})


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
    try:
        return build_model(
            wanted.name,
            federation.sample_shape,
            federation.classes,
            kind=federation.kind,
            hidden=wanted.hidden,
            stem=wanted.stem,
        )
    except (RuntimeError, MemoryError, OverflowError, TypeError) as error:
        raise SpecError(f"model: cannot be built ({str(error).splitlines()[0]})") from None


def _check_device(device: str) -> None:
    try:
        if torch.device(device).type == "meta":
            raise RuntimeError("it holds no numbers")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise SpecError(f"train.device: {device!r} cannot be used here ({reason})") from None


def _check_fit(module: nn.Module, federation: Federation) -> None:
    """Two test samples through the model say whether it fits the data."""
    x, y = federation.test.x[:2], federation.test.y[:2]
    try:
        # Lazy modules take their shape from the first samples; all others are left exactly as they are.
        lazy = any(isinstance(parameter, nn.UninitializedParameter) for parameter in module.parameters())
        rehearsal = (module if lazy else copy.deepcopy(module)).cpu().eval()
        with torch.no_grad():
            dtype = next((p.dtype for p in rehearsal.parameters()), x.dtype)
            logits = rehearsal(x.to(dtype) if x.is_floating_point() else x)
    except Exception as error:
        raise SpecError(
            f"model: does not accept samples of shape {federation.sample_shape}: {type(error).__name__}: {error}"
        ) from None
    wanted = (*y.shape, federation.classes)
    if not isinstance(logits, Tensor) or tuple(logits.shape) != wanted:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise SpecError(f"model: must return one logit per class, shape {wanted} for two samples, but returned {found}")
    cross_entropy(logits, y)
