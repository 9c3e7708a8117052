"""A claim at one scale: its studies, what its criteria speak of, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fedrelay.claims import criteria
from fedrelay.claims.claim import Claim, Claims, Scale, merged
from fedrelay.claims.criteria import Dotted
from fedrelay.claims.studies import Study, study
from fedrelay.claims.subjects import MEASURES, Subject
from fedrelay.claims.verdicts import Judgement, judge
from fedrelay.data.registry import DATASETS
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import unknown


@dataclass(frozen=True)
class Case:
    """A claim, ready to be run and judged."""

    claim: Claim
    scale: Scale
    seeds: tuple[int, ...]
    studies: Mapping[str, Study]
    obstacle: str | None = None
    """Why it cannot be run here, if it cannot."""

    def study_of(self, name: Dotted) -> tuple[Study, str]:
        """What a name in a criterion means: EXPERIMENT.SUBJECT, or SUBJECT where one experiment alone has it."""
        *owner, subject = name
        if len(owner) > 1:
            raise SpecError(f"{'.'.join(name)!r} must be SUBJECT or EXPERIMENT.SUBJECT")
        if owner and owner[0] not in self.studies:
            raise SpecError(unknown("experiment", owner[0], self.studies))
        among = [self.studies[owner[0]]] if owner else list(self.studies.values())
        having = [each for each in among if subject in each.subjects]
        if not having:
            raise SpecError(unknown("subject", subject, dict.fromkeys(s for each in among for s in each.subjects)))
        if len(having) > 1:
            raise SpecError(f"{subject!r} is in several experiments; say which: {', '.join(self.studies)}")
        return having[0], subject

    def check(self) -> None:
        """See whether all names in the criteria mean something."""
        try:
            for criterion in self.claim.criteria:
                for name, measure in criteria.names(criterion):
                    self.study_of(name)
                    if measure is not None and measure not in MEASURES:
                        raise SpecError(unknown("measure", measure, MEASURES))
        except SpecError as error:
            raise SpecError(f"claim {self.claim.claim}: holds_if: {error}") from None

    def resolve(self, seed: int, name: Dotted) -> Subject:
        """What a name stands for with one seed; of a run that failed nothing is known, unless the claim says so."""
        found, subject = self.study_of(name)
        measured = found.subject(subject, seed)
        if measured.problem is not None and self.claim.divergence == "inconclusive":
            return replace(measured, curve=())
        return measured

    def judge(self) -> Judgement:
        """The verdict by what is there."""
        return judge(self.claim.criteria, [partial(self.resolve, seed) for seed in self.seeds])


def build_case(
    claims: Claims, claim: Claim, scale: Scale, out: Path, seeds: int | None = None, device: str | None = None
) -> Case:
    """A claim at a scale, with folders below `out`; `device` is where training runs, if not as the claim says."""
    numbers = tuple(range(1, claim.seed_count(scale, seeds) + 1))
    own = {"train": {"device": device}} if device is not None else {}
    studies = {
        name: study(replace(resolved, settings=merged(resolved.settings, own)), numbers, out / scale)
        for name, resolved in claims.experiments(claim, scale).items()
    }
    case = Case(claim, scale, numbers, studies)
    case.check()
    missing = dict.fromkeys(each.missing for each in studies.values() if each.missing is not None)
    if not missing:
        return case
    wanted = "; ".join(f"{name}, from {DATASETS[name].origin}" for name in missing)
    return replace(case, obstacle=f"data not found: {wanted} ('fedrelay data' says where they are sought)")


def build_cases(
    claims: Claims,
    chosen: Sequence[Claim],
    scale: Scale,
    out: Path,
    seeds: int | None = None,
    device: str | None = None,
) -> list[Case]:
    """Several claims."""
    return [build_case(claims, claim, scale, out, seeds, device) for claim in chosen]
