"""The base class of all merges: arrivals in, the next global model out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.experiment.spec import Section, TrainSettings
from fedrelay.local.terms.base import Term
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.routes.arrival import Arrival


@dataclass(frozen=True)
class MergeInput:
    """Everything a merge may use. Each route counts as if it were one client."""

    global_model: Tensor
    """The model with which the routes started."""

    arrivals: Sequence[Arrival]
    """In the order of the plan; never empty."""

    layout: FlatLayout
    clients: int
    """The number of all clients, whether they took part or not."""

    train: TrainSettings
    """The training settings of this round."""

    label_histogram: Callable[[int], NDArray[np.int64]]
    """Client → its number of labels of each class. Only merges with `needs_class_counts` may call it: clients have to
    send their histogram."""

    state: Mapping[str, Tensor] = field(default_factory=dict)
    """The tensors that the last merge returned; empty before the first merge."""

    terms: Sequence[Term] = ()
    """The local terms that clients trained with."""


class MergeResult(NamedTuple):
    """The next global model, which must be a new tensor, and the tensors that the next merge will receive."""

    weights: Tensor
    state: Mapping[str, Tensor] = {}


class Merge(Section, ABC):
    """Merges the models that arrive at the server into the next global model.

    A subclass implements `apply`. Its pydantic fields are settings: users set them as `merge.NAME`. A merge keeps
    nothing in the object itself; what the next merge needs goes into `MergeResult.state`. Torch's random generator is
    seeded for every round.

    Example:
        >>> import fedrelay as fr
        >>> class Cautious(fr.Merge):
        ...     '''Move only part of the way towards the last arrival.'''
        ...
        ...     step: float = 0.5
        ...
        ...     def apply(self, inputs: fr.MergeInput) -> fr.MergeResult:
        ...         change = inputs.arrivals[-1].weights - inputs.global_model
        ...         return fr.MergeResult(inputs.global_model + self.step * change)
    """

    needs_class_counts: ClassVar[bool] = False
    """Whether clients send the server their number of samples of each class."""

    def check_train_settings(self, train: TrainSettings) -> None:
        """Refuse training settings that this merge cannot work with.

        Raises:
            SpecError: The settings do not fit.
        """

    def check_arrival_count(self, count_arrivals_in_last_round: Callable[[], int]) -> None:
        """Refuse options that cannot work with this experiment.

        Args:
            count_arrivals_in_last_round: Plans the last round and returns its number of routes. Call it only if
                you need it.

        Raises:
            SpecError: The options do not fit.
        """

    @abstractmethod
    def apply(self, inputs: MergeInput) -> MergeResult:
        """Merge the arrivals of a round. Input tensors must not be modified."""


def checked_result(result: object, inputs: MergeInput) -> MergeResult:
    """What a merge returned, if a run can continue with it.

    Raises:
        TypeError: It is no `MergeResult`, its weights do not fit the model, or its state has other values.
        ValueError: The weights are not a new tensor.
    """
    if not isinstance(result, MergeResult):
        raise TypeError(f"must return a MergeResult, got {type(result).__name__}")
    weights, state = result
    before = inputs.global_model
    if not isinstance(weights, Tensor) or (weights.shape, weights.dtype) != (before.shape, before.dtype):
        got = f"{tuple(weights.shape)} {weights.dtype}" if isinstance(weights, Tensor) else type(weights).__name__
        raise TypeError(f"must return a MergeResult with {len(before)} weights of {before.dtype}, got {got}")
    old = {model.untyped_storage().data_ptr() for model in (before, *(each.weights for each in inputs.arrivals))}
    if weights.untyped_storage().data_ptr() in old:
        raise ValueError("must return new weights; clone() the model that it returns")
    if not isinstance(state, Mapping):
        raise TypeError(f"the state of a MergeResult must be a mapping, got {type(state).__name__}")
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise TypeError(f"the state of a MergeResult must map names to tensors, got {name!r}: {tensor!r}")
    return result
