"""What ways to form groups may look at where no run follows."""

from __future__ import annotations

from collections.abc import Collection

from fedrelay.data.open import open_federation
from fedrelay.grouping.base import Grouping
from fedrelay.grouping.profiles import Evidence
from fedrelay.recipes import PUBLIC
from fedrelay.setting import Watch, outline
from fedrelay.spec import Experiment


def evidence_for(experiment: Experiment, groupings: Collection[Grouping], watch: Watch | None = None) -> Evidence:
    """The data and, where clients have to train for some of the groupings, a model and how it is trained."""
    if experiment.data.public is None:
        public = PUBLIC if any(grouping.needs_public for grouping in groupings) else 0
        experiment = experiment.model_copy(update={"data": experiment.data.model_copy(update={"public": public})})
    if any(grouping.trains for grouping in groupings):
        return outline(experiment).evidence(watch)
    return Evidence(open_federation(experiment.data, experiment.seed), experiment.seed)
