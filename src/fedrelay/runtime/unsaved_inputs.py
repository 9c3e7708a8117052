"""What a run was started with from Python and no run folder can hold: data, a model or a task of the caller's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrelay.errors import FedRelayError
from fedrelay.experiment.spec import Experiment, dotted_settings

SETTINGS_WITH_OWN_DATA = ("data.public", "data.validation", "data.holdout")
"""Settings of `data` that also apply to data of the caller's own: samples that are taken out of them."""

_WORDS = {"data": "data", "model": "a model", "task": "a task"}


def continued_in_python(run: Path, facts: Mapping[str, Any]) -> str:
    """The call that continues a run that no command can continue; empty if `fedrelay resume` can.

    Example:
        >>> continued_in_python(Path("runs/mine"), {"own_data": True, "own_model": True})
        "fedrelay.resume('runs/mine', data=…, model=…)"
    """
    own = "".join(f", {name}=…" for name in _WORDS if facts.get(f"own_{name}"))
    return f"fedrelay.resume({str(run)!r}{own})" if own else ""


def call_in_python(experiment: Experiment, own: Sequence[str]) -> str:
    """The lines of Python that run an experiment again.

    Args:
        experiment: The experiment.
        own: Which of data, model and task are objects of the caller's, under these names.

    Example:
        >>> from fedrelay.experiment.spec import experiment
        >>> print(call_in_python(experiment("fedseq", rounds=3, lr=0.1), ["data"]))
        import fedrelay as fr
        <BLANKLINE>
        fr.run("fedseq", data=data, **{'train.lr': 0.1, 'rounds': 3})
    """
    settings = experiment.model_dump(mode="json", exclude_defaults=True, exclude={"method", "out"})
    given = "".join(f", {name}={name}" for name in own)
    options = {
        path: value
        for path, value in dotted_settings(settings)
        if path.split(".")[0] not in own or (path in SETTINGS_WITH_OWN_DATA and value)
    }
    return f'import fedrelay as fr\n\nfr.run("{experiment.method}"{given}{f", **{options}" if options else ""})'


def how_to_continue(run: Path, facts: Mapping[str, Any]) -> str:
    """The command, or the call in Python, that continues a run."""
    call = continued_in_python(run, facts)
    return f"{call} in Python" if call else f"'fedrelay resume {run}'"


def check_unsaved_inputs(
    run: Path, facts: Mapping[str, Any], what_to_do: str, given: Mapping[str, object], failure: type[FedRelayError]
) -> None:
    """Check that the caller gives all parts again that a run was started with.

    Args:
        run: The run folder.
        facts: What `run.json` says.
        what_to_do: The function that takes the parts, for the message, such as `use fedrelay.export`.
        given: data, model and task; None where the caller gives none.
        failure: The error to raise.

    Raises:
        failure: One is missing.
    """
    for name, part in given.items():
        if facts.get(f"own_{name}") and part is None:
            words = f"was started from Python with {_WORDS[name]} of your own"
            raise failure(f"{run}: {words}; {what_to_do}({str(run)!r}, {name}=…)")
