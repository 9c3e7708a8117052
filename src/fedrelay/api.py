"""The functions behind `import fedrelay as fr`. Settings have the same names as in YAML and on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from fedrelay.data.federation import Federation
from fedrelay.data.open import open_federation
from fedrelay.data.public import PublicFederation
from fedrelay.errors import SpecError
from fedrelay.experiment.catalogue import METHODS
from fedrelay.experiment.grammar import refuse_misplaced_options
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import DataSettings, comparison, experiment, nested, shortcuts, validate
from fedrelay.routes.plan import RoundPlan
from fedrelay.runtime.comparison import ComparisonResult, run_comparison
from fedrelay.runtime.loop import Observer, resume_run, run_experiment
from fedrelay.runtime.result import Result

OwnData = str | Mapping[str, Any] | Federation
OwnModel = str | Mapping[str, Any] | nn.Module


def run(
    method: str,
    *,
    data: OwnData = "digits",
    model: OwnModel | None = None,
    observer: Observer | None = None,
    **settings: Any,
) -> Result:
    """Run one method.

    `data` is a known data set, a mapping of its settings, or a federation made with `federate`. `model` is a model of
    the zoo or your own `nn.Module`, whose present weights are the start. All other settings go by their short names
    (`clients=100, alpha=0, lr=.05`), sections (`train={"lr": .05}`) or dotted names (`**{"train.lr": .05}`). With
    `out` the run is kept in a folder and can be resumed.

    >>> run("fedseq", data="digits", clients=100, alpha=0, rounds=60).accuracy
    """
    settings, federation, module = _own(settings, data, model)
    refuse_misplaced_options([method], nested(settings))
    return run_experiment(experiment(method, **settings), federation=federation, module=module, observer=observer)


def compare(
    methods: Sequence[str | Mapping[str, Any]],
    *,
    data: OwnData = "digits",
    model: OwnModel | None = None,
    observer: Observer | None = None,
    **settings: Any,
) -> ComparisonResult:
    """Run several methods over several `seeds`, everything else equal; settings as in `run`.

    >>> compare(["fedavg", "fedseq"], clients=100, alpha=0, rounds=60, seeds=[1, 2, 3])["fedseq"].results
    """
    settings, federation, module = _own(settings, data, model)
    refuse_misplaced_options([each for each in methods if isinstance(each, str)], nested(settings))
    return run_comparison(comparison(methods, **settings), federation=federation, module=module, observer=observer)


def resume(
    run: str | Path,
    *,
    data: Federation | None = None,
    model: nn.Module | None = None,
    observer: Observer | None = None,
) -> Result:
    """Continue a run from its folder, with your own data and model if it was started with them."""
    return resume_run(Path(run), federation=data, module=model, observer=observer)


def plan(
    method: str, round: int = 1, *, data: OwnData = "digits", model: OwnModel | None = None, **settings: Any
) -> RoundPlan:
    """How models would travel in a round; nothing is trained, but for profiles of clients where groups need them."""
    if not isinstance(round, int) or round < 1:
        raise SpecError(f"round: must be a whole number from 1, got {round!r}")
    settings, federation, module = _own(settings, data, model)
    refuse_misplaced_options([method], nested(settings))
    return prepare(experiment(method, **settings), federation=federation, module=module).plan(round)


def load_data(name: str = "digits", *, seed: int = 1, **settings: Any) -> Federation:
    """A known data set dealt out to clients: `load_data("digits", clients=100, alpha=0)`."""
    tree = nested({"data": name, **settings})
    if set(tree) != {"data"}:
        raise SpecError(f"load_data: takes settings of 'data' only, got {', '.join(sorted(set(tree) - {'data'}))}")
    chosen = tree["data"] if isinstance(tree["data"], Mapping) else {"name": tree["data"]}
    return open_federation(validate(DataSettings, chosen, "data."), seed)


def methods() -> dict[str, str]:
    """The names of all methods and what they do; names can be joined with +."""
    return {name: entry.summary for name, entry in METHODS.items()}


def _own(
    settings: Mapping[str, Any], data: OwnData, model: OwnModel | None
) -> tuple[dict[str, Any], Federation | None, nn.Module | None]:
    """Keep the user's own objects apart from the settings, which stay plain data."""
    plain = dict(settings)
    federation = module = None
    if isinstance(data, str | Mapping):
        plain = {"data": data, **plain}
    elif not hasattr(data, "samples"):
        raise SpecError(f"data: must be a name, a mapping of settings or a federation, got {type(data).__name__}")
    else:
        federation = data
        paths = {name: shortcuts().get(name, name) for name in plain}
        useless = [name for name, path in paths.items() if path.split(".")[0] == "data" and path != "data.public"]
        if useless:
            raise SpecError(f"{', '.join(useless)}: has no effect on data of your own; say it to federate or load_data")
        public = {"public": data.per_class} if isinstance(data, PublicFederation) else {}
        plain = {"data": {"name": data.name, "clients": data.clients, **public}, **plain}
    if isinstance(model, nn.Module):
        module = model
        useless = [name for name in plain if shortcuts().get(name, name).split(".")[0] == "model"]
        if useless:
            raise SpecError(f"{', '.join(useless)}: has no effect on a model of your own")
        plain = {"model": {"name": type(model).__name__}, **plain}
    elif model is not None:
        plain = {"model": model, **plain}
    return plain, federation, module
