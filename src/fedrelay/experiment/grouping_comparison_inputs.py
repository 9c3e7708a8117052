"""Inputs of profiles where no run follows, for comparing groupings."""

from __future__ import annotations

from collections.abc import Collection

from fedrelay.data.open_federation import open_federation
from fedrelay.errors import SpecError
from fedrelay.experiment.comparison_runs import PUBLIC_SAMPLES
from fedrelay.experiment.data_and_model import named_task
from fedrelay.experiment.prepare import OnProfilingProgress, inputs_of_profiles, prepare_without_groups
from fedrelay.experiment.spec import Experiment
from fedrelay.grouping.grouping import Grouping
from fedrelay.grouping.profiles import ProfileInputs


def profile_inputs(
    experiment: Experiment, groupings: Collection[Grouping], on_profiling_progress: OnProfilingProgress | None = None
) -> ProfileInputs:
    """The data and, if clients have to train for one of the groupings, the model and how it is trained.

    Raises:
        SpecError: The data have no classes, by which groups are compared.
    """
    if experiment.data.public is None:
        public = PUBLIC_SAMPLES if any(grouping.needs_public for grouping in groupings) else 0
        experiment = experiment.model_copy(update={"data": experiment.data.model_copy(update={"public": public})})
    if any(grouping.needs_profiling_by_clients for grouping in groupings):
        inputs = inputs_of_profiles(prepare_without_groups(experiment), on_profiling_progress)
    else:
        federation = open_federation(experiment.data, experiment.seed, named_task(experiment))
        inputs = ProfileInputs(federation, experiment.seed)
    if not inputs.federation.class_count:
        raise SpecError(f"data: groups are compared by their classes, but {inputs.federation.name!r} has none")
    return inputs
