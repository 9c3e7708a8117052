"""Methods of users: `register` adds one to the catalogue, after checking that its parts can work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from inspect import iscoroutinefunction, isfunction, signature
from typing import Any, get_args

from fedrelay.errors import SpecError
from fedrelay.experiment.error_messages import unknown
from fedrelay.experiment.method_catalogue import BUILT_IN, METHODS, MethodEntry, Options
from fedrelay.experiment.part_serialization import REGISTERED, part_name
from fedrelay.experiment.sections import Sampling, Section, Training, TrainSettings
from fedrelay.experiment.spec import validate
from fedrelay.grouping.grouping import Grouping
from fedrelay.local.client_profiler import ClientProfiler
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.tensor_declarations import ClientState, Payload, ServerState
from fedrelay.merge.base import Merge
from fedrelay.merge.mean import Mean
from fedrelay.merge.server_stage import ServerStage
from fedrelay.routes.base import Routing
from fedrelay.user_code import is_built_in
from fedrelay.warmup.base import Warmup

_BASES: dict[str, type[Section]] = {
    "warmup": Warmup,
    "route": Routing,
    "grouping": Grouping,
    "merge": Merge,
    "server": ServerStage,
    "profiler": ClientProfiler,
}


def register(
    name: str,
    *,
    summary: str,
    route: type[Routing] | None = None,
    grouping: type[Grouping] | None = None,
    terms: Mapping[str, type[Term]] | None = None,
    merge: type[Merge] | None = None,
    default_merge: type[Merge] = Mean,
    warmup: type[Warmup] | None = None,
    profiler: type[ClientProfiler] | None = None,
    training: Training = "federated",
    sampling: Sampling = "random",
    schedule: str | None = None,
    clip: float | None = None,
    server: Options | None = None,
    defaults: Mapping[str, Options] | None = None,
) -> None:
    """Add a method to the catalogue, so that specs, the command line and reports know it by name.

    Args:
        name: The name of the method. Names of built-in methods are taken.
        summary: One line for `fedrelay methods`.
        route: How models travel; a subclass of `Routing`.
        grouping: How groups are formed; `Grouping` itself, or a subclass.
        terms: What clients do besides plain training, by term name; subclasses of `Term`.
        merge: How the server merges arrivals; a subclass of `Merge`.
        default_merge: The merge that is used when no name of a combination brings one.
        warmup: What comes before the first round; a subclass of `Warmup`.
        profiler: What nodes compute for the grouping, if it has a profile of its own; a subclass of `ClientProfiler`.
        training: `"alone"` or `"pooled"` if clients do not train together: each has a model of its own, or one client
            has all samples. Federated methods are compared with such a method, which is never called the best one.
        sampling: `"passes"` if every client takes part once before any takes part again; `sampling` of a spec overrules
            it.
        schedule: The schedule of the learning rate, such as `"cosine"`; `train.schedule` of a spec overrules it.
        clip: The maximum norm of gradients; `train.clip` of a spec overrules it.
        server: Options of the server stage that the method sets, such as `{"lookahead": 0.9}`.
        defaults: Options that differ from the parts' own defaults, by place: `{"route": {"loops": 2}}`.

    Raises:
        SpecError: The name is taken or not valid, or a part has the wrong type or cannot work.
    """
    for given, what in ((terms, "terms"), (server, "server"), (defaults, "defaults")):
        if given is not None and not isinstance(given, Mapping):
            raise SpecError(f"method {name!r}: {what} must be a mapping by name, got {given!r}")
    for term in terms or ():
        if not _is_plain_name(term):
            raise SpecError(f"method {name!r}: the name of a term must be letters, digits, - and _, got {term!r}")
    for place, options in (defaults or {}).items():
        if place == "server":
            raise SpecError(f"method {name!r}: options of the server stage are no defaults; use server={options!r}")
        if not isinstance(options, Mapping) or not (place in _BASES or str(place).startswith("terms.")):
            got = f"{place!r}: {options!r}"
            raise SpecError(f"method {name!r}: defaults must be like {{'route': {{'loops': 2}}}}, got {got}")
    for what, value, kinds in (("training", training, get_args(Training)), ("sampling", sampling, get_args(Sampling))):
        if value not in kinds:
            raise SpecError(f"method {name!r}: {what} must be one of {', '.join(kinds)}, got {value!r}")
    if not isinstance(schedule, str | None):
        raise SpecError(f"method {name!r}: schedule must be the name of a schedule, such as 'cosine', got {schedule!r}")
    named = {} if schedule is None else {"schedule": schedule}
    train = validate(TrainSettings, {**named, "clip": clip}, f"method {name!r}: ")
    entry = MethodEntry(
        summary,
        route=route,
        grouping=grouping,
        terms=dict(terms or {}),
        merge=merge,
        default_merge=default_merge,
        warmup=warmup,
        training=training,
        sampling=sampling,
        schedule=schedule,
        clip=train.clip,
        server=dict(server or {}),
        defaults=dict(defaults or {}),
    )
    if not isinstance(name, str) or not isinstance(summary, str):
        raise SpecError(f"method {name!r}: name and summary must be text")
    if not name or any(each.isspace() or each in "+/:" for each in name):
        raise SpecError(f"method {name!r}: a name has no spaces and none of the characters + / :")
    if (known := METHODS.get(name)) is not None and (name in BUILT_IN or not _is_redefinition(known, entry)):
        owner = next(iter(known.parts().values())).__module__
        raise SpecError(f"method {name!r}: this name is taken by {owner}; choose another")
    if not entry.parts():
        raise SpecError(f"method {name!r}: brings no part; give a route, grouping, terms, merge, warm-up or server")
    for place, part in entry.parts().items():
        _check_part(name, place, part)
    _check_part(name, "merge", default_merge)
    _check_defaults(name, "server", ServerStage, entry.server)
    for place, options in entry.defaults.items():
        _check_defaults(name, place, _part_at(entry, place), options)
    if profiler is not None:
        _check_part(name, "profiler", profiler)
    METHODS[name] = entry
    sent = [*entry.terms.values(), *([profiler] if profiler is not None else [])]
    REGISTERED.update({part_name(part): part for part in sent if not is_built_in(part)})


def _is_redefinition(known: MethodEntry, entry: MethodEntry) -> bool:
    """Whether a method of the user's own is registered again, because a notebook cell ran again for example."""

    def names(each: MethodEntry) -> dict[str, tuple[str, str]]:
        return {place: (part.__module__, part.__qualname__) for place, part in each.parts().items()}

    built_in = all(map(is_built_in, known.parts().values()))
    return known == entry or (not built_in and names(known) == names(entry))


def _check_part(method: str, place: str, part: Any) -> None:
    base = _BASES.get(place, Term)
    if not (isinstance(part, type) and issubclass(part, base)):
        raise SpecError(f"method {method!r}: {place} must be a subclass of {base.__name__}, got {part!r}")
    if not is_built_in(part):
        _check_hooks(method, part, base)


def _check_hooks(method: str, part: type[Section], base: type[Section]) -> None:
    """Refuse a part that misses a hook, misspells one, gives it other arguments, or declares its tensors wrongly."""
    if missing := sorted(getattr(part, "__abstractmethods__", ())):
        raise SpecError(f"method {method!r}: {part.__name__} must define {', '.join(missing)}")
    hooks = [name for name in dir(base) if not name.startswith(("_", "model_"))]
    for name, value in vars(part).items():
        if name.startswith("_") or not isfunction(value):
            continue
        own = getattr(base, name, None)
        if own is None and (close := get_close_matches(name, hooks, 1, 0.85)):
            raise SpecError(f"method {method!r}: {part.__name__}.{name} is no hook; did you mean {close[0]}?")
        if isfunction(own) and iscoroutinefunction(value):
            raise SpecError(f"method {method!r}: {part.__name__}.{name} must not be async; nobody would await it")
        if isfunction(own) and not _same_order(list(signature(own).parameters), list(signature(value).parameters)):
            wanted = ", ".join(signature(own).parameters)
            raise SpecError(f"method {method!r}: {part.__name__}.{name} must take ({wanted})")
    if issubclass(part, Term):
        _check_tensors(f"method {method!r}: {part.__name__}.tensors", part.tensors)
        _check_batchable(method, part)
    if issubclass(part, Grouping) and part.form_groups is not Grouping.form_groups:
        raise SpecError(f"method {method!r}: {part.__name__} must override assign_groups instead of form_groups")
    if issubclass(part, Warmup) and getattr(part, "length", None) not in part.model_fields:
        options = ", ".join(part.model_fields) or "it has none yet"
        raise SpecError(f"method {method!r}: {part.__name__}.length must name its option with the rounds ({options})")


def _check_batchable(method: str, part: type[Term]) -> None:
    """Refuse a hook that would never be called, because the term says that models may be trained together."""
    if part.batchable and part.adjust_received_model is not Term.adjust_received_model:
        raise SpecError(
            f"method {method!r}: {part.__name__}.adjust_received_model is only called for models that are trained one "
            "by one; set batchable = False in the class"
        )


def _part_at(entry: MethodEntry, place: str) -> type[Section] | None:
    """The part whose options are at a place: one of the entry, or a term of another method; None if unknown."""
    if place == "merge":
        return entry.merge or entry.default_merge
    others = (each.terms for each in METHODS.values())
    terms = {f"terms.{name}": term for terms in others for name, term in terms.items()}
    return entry.parts().get(place, terms.get(place))


def _check_defaults(method: str, place: str, part: type[Section] | None, options: Options) -> None:
    """Refuse defaults that the part would refuse; some options may be left for the user to set."""
    if part is None:
        return
    left = [name for name, option in part.model_fields.items() if option.is_required() and name not in options]
    if unknown_names := [name for name in options if name not in part.model_fields]:
        raise SpecError(f"method {method!r}: defaults: {place}: {unknown('key', unknown_names[0], part.model_fields)}")
    if not left:
        try:
            validate(part, options, f"{place}.")
        except SpecError as error:
            raise SpecError(f"method {method!r}: defaults: {error}") from None


def _same_order(wanted: Sequence[str], given: Sequence[str]) -> bool:
    """Whether a hook takes as many parameters, none of them in another's place: hooks are called by position."""
    swapped = (one != other and one in wanted for one, other in zip(given, wanted, strict=False))
    return len(given) == len(wanted) and not any(swapped)


def _is_plain_name(name: object) -> bool:
    return isinstance(name, str) and name.replace("-", "_").isidentifier()


def _check_tensors(what: str, tensors: object) -> None:
    if not isinstance(tensors, tuple | list):
        raise SpecError(f"{what} must be a tuple, got {tensors!r}")
    for tensor in tensors:
        if not isinstance(tensor, ClientState | ServerState | Payload):
            raise SpecError(f"{what} must hold ClientState, ServerState or Payload, got {tensor!r}")
        if not _is_plain_name(tensor.name):
            raise SpecError(f"{what}: names must be letters, digits, - and _, got {tensor.name!r}")
        if sum((type(tensor), tensor.name) == (type(other), other.name) for other in tensors) > 1:
            raise SpecError(f"{what}: duplicate name {tensor.name!r}")
        if isinstance(tensor, ClientState) and (target := tensor.added_at_merge_to):
            lasting = [each for each in tensors if isinstance(each, ClientState) and not each.until_merge]
            if not tensor.until_merge or (target, tensor.scalar) not in [(each.name, each.scalar) for each in lasting]:
                raise SpecError(
                    f"{what}: {tensor.name!r} is added at a merge to {target!r}, so it needs until_merge=True, and "
                    f"{target!r} must be a ClientState of the same term and size that lasts longer"
                )
