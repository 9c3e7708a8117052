"""What an owner demands of every turn, whatever the server asks for: enough noise, and an end.

The server says whether a method has differential privacy; a node with a floor makes sure of it by itself. Nothing else
leaves such a node: no profile, no verdict on samples, no loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from fedrelay.errors import EngineError, SpecError
from fedrelay.files import write_atomically
from fedrelay.local.terms.dp import LEAST_NOISE, Dp
from fedrelay.local.trainer import TrainingJob
from fedrelay.privacy.accountant import Accountant

SPENT = "turns"
"""The file that counts a node's turns."""


class DeclinedByOwner(EngineError):
    """The owner of the data does not allow what was asked."""


@dataclass(frozen=True)
class OwnerPolicy:
    """The least noise of a turn, in units of the clip, and perhaps the greatest clip."""

    noise: float
    clip: float | None = None

    def __post_init__(self) -> None:
        """See that it is one."""
        if not LEAST_NOISE <= self.noise < math.inf:
            raise SpecError(f"--require-dp: must be a number from {LEAST_NOISE:g}, got {self.noise:g}")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise SpecError(f"--require-clip: must be a number above 0, got {self.clip:g}")

    def check(self, job: TrainingJob) -> None:
        """Decline a turn that would protect the samples less."""
        guards = [term for term in job.terms if isinstance(term, Dp)]
        if len(guards) != 1:
            raise DeclinedByOwner(f"this node takes part only with +dp, terms.dp.noise at least {self.noise:g}")
        [dp] = guards
        if dp.noise < self.noise:
            raise DeclinedByOwner(f"terms.dp.noise is {dp.noise:g}; this node asks for at least {self.noise:g}")
        if self.clip is not None and dp.clip > self.clip:
            raise DeclinedByOwner(f"terms.dp.clip is {dp.clip:g}; this node asks for at most {self.clip:g}")
        for term in job.terms:
            if term.reveals:
                raise DeclinedByOwner(
                    f"{type(term).__name__} sends more than noise can hide; this node asks for privacy"
                )
        try:
            dp.adapt(job.module)
        except SpecError as error:
            raise DeclinedByOwner(str(error)) from None

    def decline(self, what: str) -> DeclinedByOwner:
        """The answer to a question about samples that noise does not protect."""
        return DeclinedByOwner(f"{what} would leave this node without noise; its owner asks for privacy (--require-dp)")


class PrivacyBudget:
    """So many turns until a node's ε is spent, counted in its folder; each has at least the floor's noise."""

    def __init__(self, folder: Path, floor: OwnerPolicy, epsilon: float, delta: float) -> None:
        if not 0 < epsilon < math.inf or not 0 < delta < 1:
            raise SpecError(f"--budget: ε must be a number above 0 and δ one below 1, got {epsilon:g} and {delta:g}")
        self.path, self.epsilon = folder / SPENT, epsilon
        self.most = Accountant(floor.noise, delta).most_visits(epsilon)
        if not self.most:
            raise SpecError(f"--budget: a single turn with noise {floor.noise:g} costs more than {epsilon:g}")
        self.spent = self._counted()

    @property
    def left(self) -> int:
        """StateVersions that may still be taken."""
        return max(0, self.most - self.spent)

    def spend(self) -> None:
        """Count one turn, before its answer can leave; decline it where none is left.

        The file has the last word: another process may have counted after this one was made, before it ended.
        """
        self.spent = max(self.spent, self._counted())
        if not self.left:
            raise DeclinedByOwner(f"the budget of this node is spent: {self.spent} turns, ε = {self.epsilon:g}")
        write_atomically(self.path, str(self.spent + 1).encode())
        self.spent += 1

    def _counted(self) -> int:
        try:
            return int(self.path.read_text()) if self.path.exists() else 0
        except (OSError, ValueError):
            raise EngineError(f"{self.path}: is damaged; nobody knows how much privacy is spent") from None
