"""The owner's policy: what a node demands of every hop, whatever the server asks for.

A node with a policy checks by itself that a method has enough noise. It sends nothing else: no profile, no evaluation
and no loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from fedrelay.errors import EngineError, SpecError
from fedrelay.files import write_atomically
from fedrelay.local.terms.client_level_privacy import MIN_NOISE, ClientLevelPrivacy
from fedrelay.local.trainer import TrainingJob
from fedrelay.privacy.accountant import Accountant

CHARGED = "hops-charged"
"""The file that counts the hops charged to the budget."""


class DeclinedByOwner(EngineError):
    """The owner of the data does not allow the request."""


@dataclass(frozen=True)
class OwnerPrivacyPolicy:
    """The least noise of a hop, in units of the clip, and the greatest clip."""

    noise: float
    clip: float | None = None

    def __post_init__(self) -> None:
        if not MIN_NOISE <= self.noise < math.inf:
            raise SpecError(f"--require-dp: must be at least {MIN_NOISE:g}, got {self.noise:g}")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise SpecError(f"--require-clip: must be greater than 0, got {self.clip:g}")

    def check(self, job: TrainingJob) -> None:
        """Decline a hop that would protect the samples less."""
        guards = [term for term in job.terms if isinstance(term, ClientLevelPrivacy)]
        if len(guards) != 1:
            raise DeclinedByOwner(f"this node takes part only with +dp and terms.dp.noise at least {self.noise:g}")
        [dp] = guards
        if dp.noise < self.noise:
            raise DeclinedByOwner(f"terms.dp.noise is {dp.noise:g}; this node requires at least {self.noise:g}")
        if self.clip is not None and dp.clip > self.clip:
            raise DeclinedByOwner(f"terms.dp.clip is {dp.clip:g}; this node requires at most {self.clip:g}")
        for term in job.terms:
            if term.payload_reveals_data:
                name = type(term).__name__
                raise DeclinedByOwner(f"{name} sends more than noise protects; this node requires privacy")
        try:
            dp.check_model(job.module)
        except SpecError as error:
            raise DeclinedByOwner(str(error)) from None

    def refusal(self, what: str) -> DeclinedByOwner:
        """The reply to a request for something that noise does not protect."""
        return DeclinedByOwner(f"{what} would leave this node without noise; its owner requires privacy (--require-dp)")


class PrivacyBudget:
    """Hops until ε is spent, counted in the node's folder. Each is charged as if it had only the required noise."""

    def __init__(self, folder: Path, policy: OwnerPrivacyPolicy, epsilon: float, delta: float) -> None:
        if not 0 < epsilon < math.inf or not 0 < delta < 1:
            raise SpecError(f"--budget: ε must be above 0 and δ between 0 and 1, got {epsilon:g} and {delta:g}")
        self.path, self.epsilon = folder / CHARGED, epsilon
        if (old := folder / "turns").exists():
            raise SpecError(f"{old}: this count is kept in {CHARGED!r} now; rename the file, so that nothing is lost")
        self.most = Accountant(policy.noise, delta).max_hops(epsilon)
        if not self.most:
            raise SpecError(f"--budget: a single hop with noise {policy.noise:g} costs more than {epsilon:g}")
        self.spent, _ = self._read()

    @property
    def left(self) -> int:
        return max(0, self.most - self.spent)

    def charge(self, hop: str) -> None:
        """Charge one hop, before its reply can leave; decline it if nothing is left.

        A hop that was charged when this node was killed, and to which there was no reply, is not charged again.

        Args:
            hop: A digest of everything that the hop depends on.
        """
        # The file is read again each time: an earlier process of this node may have charged after this one started.
        spent, unfinished = self._read()
        self.spent = max(self.spent, spent)
        if unfinished == hop:
            return
        if not self.left:
            raise DeclinedByOwner(f"the privacy budget of this node is spent: {self.spent} hops, ε = {self.epsilon:g}")
        write_atomically(self.path, f"{self.spent + 1} {hop}".encode())
        self.spent += 1

    def settle(self) -> None:
        """The hop that was charged last is over: if it is asked for again and its reply is not kept, that costs."""
        write_atomically(self.path, str(self.spent).encode())

    def _read(self) -> tuple[int, str]:
        """The hops charged, and the last one if it is not over."""
        try:
            spent, _, unfinished = (self.path.read_text(encoding="utf-8") if self.path.exists() else "0").partition(" ")
            return int(spent), unfinished
        except (OSError, ValueError):
            raise EngineError(f"{self.path}: is damaged, so the privacy spent is unknown") from None
