"""Data of the user's own that differ from seed to seed: a function of the seed."""

from __future__ import annotations

from collections.abc import Callable

from fedrelay.data.federation import Federation
from fedrelay.errors import DataError, SpecError
from fedrelay.user_code import accepts, call_own, name_of


class OwnDataPerSeed:
    """Calls the function for every run, and checks that runs with the same seed get the same data.

    Args:
        function: Takes the seed of a run, returns a federation.

    Raises:
        SpecError: The function does not take one argument.
    """

    def __init__(self, function: Callable[[int], Federation]) -> None:
        if not accepts(function, 1):
            how = "data=lambda seed: fr.federate(…, seed=seed)"
            raise SpecError(f"data: {name_of(function)} must take the seed of a run, as in {how}")
        self.function = function
        self.fingerprints: dict[int, str] = {}

    def federation(self, seed: int) -> Federation:
        """The data of the runs with this seed.

        Raises:
            SpecError: The function failed, or returned something else than a federation.
            DataError: It returned other data than before.
        """
        what = f"data: {name_of(self.function)}({seed})"
        found = call_own(self.function, what, seed)
        if not hasattr(found, "train_samples"):
            raise SpecError(f"{what}: must return a federation, got {type(found).__name__}")
        federation: Federation = found
        fingerprint = federation.fingerprint()
        if self.fingerprints.setdefault(seed, fingerprint) != fingerprint:
            raise DataError(f"{what}: returned other data than before; all that is random must follow from the seed")
        return federation


OwnData = Federation | OwnDataPerSeed
"""The caller's own data: the same for all seeds, or made for each."""
