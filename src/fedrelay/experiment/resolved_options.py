"""The options that a method really runs with, so that a run never continues with others.

A spec holds what its author set. The rest are defaults of parts, which may change with the version of FedRelay or of a
plug-in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from pathlib import PurePath
from typing import Any

from fedrelay.errors import RunFolderError
from fedrelay.experiment.part_docs import flat_options
from fedrelay.experiment.sections import Section
from fedrelay.local.terms.base import Term


def resolved_options(parts: Mapping[str, Section]) -> dict[str, Any]:
    """What parts are and do, as values of JSON.

    Args:
        parts: The parts by their place in a spec, such as `route` or `terms.prox`.

    Returns:
        `{"route": "Chains", "route.loops": 1, …}`: the class of every part, the value of every option, and the tensors
        of every term.

    Example:
        >>> from fedrelay.routes.all_to_all import AllToAll
        >>> resolved_options({"route": AllToAll(beta=0.25)})
        {'route': 'AllToAll', 'route.beta': 0.25, 'route.weights': 'uniform', 'route.temperature': 1.0}
    """
    found: dict[str, Any] = {}
    for place, part in parts.items():
        found[place] = type(part).__name__
        found |= flat_options(place, part.model_dump())
        if isinstance(part, Term):
            found[f"{place}.tensors"] = list(map(repr, part.tensors))
    plain: dict[str, Any] = json.loads(json.dumps(found, default=_plain, skipkeys=True))
    return plain


def refuse_other_options(run: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to continue a run with other options than those it was started with; new options may have appeared.

    Args:
        run: The run, for the message.
        then: The options that its folder records.
        now: The options that its spec gives now.

    Raises:
        RunFolderError: An option, a part or the tensors of a term differ.
    """
    for name, old in then.items():
        if name not in now:
            change = "does not exist any more"
        elif now[name] != old:
            change = f"is {now[name]!r} now"
        else:
            continue
        raise RunFolderError(
            f"{run}: {name} was {old!r} when the run was started and {change}; continue with the FedRelay and the "
            "plug-in that started it, or start a new run"
        )


def _plain(value: Any) -> Any:
    """A value that JSON does not have; of types of the user's own, the name has to do."""
    if isinstance(value, PurePath):
        return str(value)
    return sorted(map(str, value)) if isinstance(value, Set) else type(value).__name__
