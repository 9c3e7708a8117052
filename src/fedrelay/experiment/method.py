"""A method ready to run: its parts with their options, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedrelay.cost.devices import ClockSettings
from fedrelay.errors import SpecError
from fedrelay.experiment.method_catalogue import load_plugins
from fedrelay.experiment.method_grammar import ParsedMethod, parse_method
from fedrelay.experiment.resolved_options import resolved_options
from fedrelay.experiment.sections import Training, TrainSettings
from fedrelay.experiment.spec import Experiment, Sampling, unknown, validate
from fedrelay.grouping.grouping import Grouping
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.client_level_privacy import ClientLevelPrivacy
from fedrelay.merge.base import Merge
from fedrelay.merge.server_stage import ServerStage
from fedrelay.privacy.checks import check_fresh_noise, check_nothing_unsent, check_private
from fedrelay.routes.base import Routing
from fedrelay.user_code import errors_in_own_part, is_built_in
from fedrelay.warmup.base import Phase, Warmup


@dataclass(frozen=True)
class Method:
    """A method ready to run: its parts with their options."""

    name: str
    route: Routing
    grouping: Grouping | None
    terms: tuple[Term, ...]
    merge: Merge
    server: ServerStage
    sampling: Sampling
    training: Training
    warmup: Warmup | None
    clock: ClockSettings
    options: Mapping[str, Any]
    """The value of every option of every part, set or default (see `resolved_options`)."""

    @property
    def pools_data(self) -> bool:
        """Whether all samples are in one place."""
        return self.training == "pooled"

    @property
    def profiles_clients(self) -> bool:
        """Whether clients compute profiles before the first round."""
        selector = self.warmup.selector if self.warmup is not None else None
        groups = self.grouping is not None and self.grouping.needs_profiling_by_clients
        return groups or (selector is not None and selector.needs_vectors)

    @property
    def needs_class_counts(self) -> bool:
        """Whether clients must send their class counts to the server."""
        parts = (self.grouping, self.merge, self.route, *(phase.route for phase in self._warmup_phases()))
        return not self.pools_data and any(part is not None and part.needs_class_counts for part in parts)

    @property
    def privacy(self) -> ClientLevelPrivacy | None:
        """The differential privacy term, if the method has one."""
        return next((term for term in self.terms if isinstance(term, ClientLevelPrivacy)), None)

    @property
    def node_plugins(self) -> tuple[str, ...]:
        """Modules from outside the package whose terms clients run; nodes need them too."""
        terms = [*self.terms, *(term for phase in self._warmup_phases() for term in phase.terms)]
        return tuple(sorted({type(term).__module__ for term in terms if not is_built_in(type(term))}))

    def phases(self, rounds: int) -> tuple[Phase, ...]:
        """All rounds of a run: those of the warm-up, then the method's own."""
        common = tuple(term for term in self.terms if term.in_warmup)
        before = [replace(phase, terms=(*phase.terms, *common)) for phase in self._warmup_phases()]
        rest = rounds - sum(phase.rounds for phase in before)
        if rest < 0:
            assert self.warmup is not None
            raise SpecError(
                f"rounds: the warm-up alone takes {rounds - rest} (warmup.{self.warmup.length}), got {rounds}; "
                f"lower warmup.{self.warmup.length} or raise rounds"
            )
        own = [Phase(rest, self.route, self.terms, self.merge, server=self.server)] if rest else []
        found: list[Phase] = []
        for phase in before + own:
            found.append(replace(phase, first=found[-1].last + 1 if found else 1))
        return tuple(found)

    def _warmup_phases(self) -> tuple[Phase, ...]:
        if self.warmup is None:
            return ()
        with errors_in_own_part(self.warmup, "phases"):
            found = tuple(self.warmup.phases())
            for phase in found:
                if not isinstance(phase, Phase):
                    raise TypeError(f"must return Phase objects, got {phase!r}")
                phase.check()
        return found


def build_method(experiment: Experiment) -> Method:
    """The method of an experiment. Every option is checked against the part that takes it.

    Raises:
        SpecError: The method, one of its plug-ins or one of its options is not valid.
    """
    load_plugins(experiment.plugins)
    given = parse_method(experiment.method)
    train = _train_settings(given, experiment.train)
    kinds = dict(given.parts())
    for name in experiment.terms:
        if f"terms.{name}" not in kinds:
            raise SpecError(f"terms.{name}: {unknown('term', name, given.terms)} in method {given.name!r}")
    for part, reason in (("grouping", "forms no groups"), ("warmup", "has no warm-up")):
        if getattr(experiment, part) and part not in kinds:
            raise SpecError(f"{part}: method {given.name!r} {reason} and takes no {part} options")
    if "handover" in experiment.route and "handover" not in kinds["route"].model_fields:
        raise SpecError(
            f"route.handover: method {given.name!r} has no route through several clients, so nothing is handed over; "
            "remove the setting. To hide single clients from the server, use a method whose models visit several "
            "(fedseq, fedcyclic, spfl, fedgsp) with route.handover=sealed, or add +dp"
        )
    parts: dict[str, Any] = {
        place: validate(kind, _options(given, experiment, place), f"{place}.") for place, kind in kinds.items()
    }
    clock = validate(ClockSettings, experiment.clock, "clock.")
    method = Method(
        given.name,
        parts["route"],
        parts.get("grouping"),
        tuple(parts[f"terms.{name}"] for name in given.terms),
        parts["merge"],
        parts["server"],
        experiment.sampling or given.sampling,
        given.training,
        parts.get("warmup"),
        clock,
        {
            **resolved_options({**parts, "clock": clock}),
            "sampling": experiment.sampling or given.sampling,
            "train.schedule.name": train.schedule.name or "constant",
            "train.clip": train.clip or 0.0,
        },
    )
    method.route.check_sampling(method.sampling)
    for term in method.terms:
        term.check_train_settings(train)
    method.merge.check_train_settings(train)
    if method.route.chooses_group_count and method.grouping is not None:
        method.grouping.check_fits_route_that_chooses_group_count(given.name)
    if not method.route.ever_merges:
        _refuse_parts_that_need_a_merge(given, method.server)
    if method.privacy is not None:
        check_private(given.name, given.terms, method.route, method.warmup, method.pools_data, train)
        check_fresh_noise(experiment)
        check_nothing_unsent(experiment)
    method.phases(experiment.rounds)
    return method


def with_train_settings_of_method(experiment: Experiment) -> Experiment:
    """The experiment with the train settings that its method brings written out, where the spec leaves them open."""
    load_plugins(experiment.plugins)
    train = _train_settings(parse_method(experiment.method), experiment.train)
    return experiment.model_copy(update={"train": train})


def _train_settings(given: ParsedMethod, train: TrainSettings) -> TrainSettings:
    schedule = train.schedule.model_copy(update={"name": train.schedule.name or given.schedule})
    return train.model_copy(update={"schedule": schedule, "clip": given.clip if train.clip is None else train.clip})


def _refuse_parts_that_need_a_merge(given: ParsedMethod, server: ServerStage) -> None:
    if server.settings_in_use:
        raise SpecError(
            f"{server.settings_in_use[0]}: models of method {given.name!r} are never merged, so it has no effect"
        )
    if given.merge_name is not None:
        raise SpecError(f"method {given.name!r}: models are never merged, so {given.merge_name!r} has no effect")
    for name, term in given.terms.items():
        if term.after_merge is not Term.after_merge:
            raise SpecError(f"method {given.name!r}: models are never merged, which the term {name!r} needs")


def _options(given: ParsedMethod, experiment: Experiment, place: str) -> Mapping[str, Any]:
    """The options that the spec sets for a part, over the defaults of the method."""
    section, _, name = place.partition(".")
    options = dict(getattr(experiment, section))
    if name:
        options = options.get(name, {})
        if not isinstance(options, Mapping):
            raise SpecError(f"{place}: must be a mapping of options, got {options!r}")
    defaults = given.defaults.get(place, {})
    if options.get("assign", defaults.get("assign")) != defaults.get("assign"):
        defaults = {}  # the defaults belong to another way of grouping
    return {**defaults, **options}
