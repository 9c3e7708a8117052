"""What federations that change something about another one have in common: the rest is the other one's."""

from __future__ import annotations

from dataclasses import dataclass

from fedrelay.data.federation import Federation, Kind, Samples, ShortRepr
from fedrelay.data.partition import Ints


@dataclass(frozen=True, repr=False)
class FederationWrapper(ShortRepr):
    """A federation over another one, `members`, that is the same in everything it does not say itself."""

    members: Federation

    @property
    def name(self) -> str:
        """The name of the members' data."""
        return self.members.name

    @property
    def kind(self) -> Kind:
        """What a sample is."""
        return self.members.kind

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return self.members.clients

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return self.members.classes

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.members.sample_shape

    @property
    def test(self) -> Samples:
        """The members' test samples."""
        return self.members.test

    def size(self, client: int) -> int:
        """The number of samples of one client."""
        return self.members.size(client)

    def sizes(self) -> Ints:
        """The number of samples of every client."""
        return self.members.sizes()

    def samples(self, client: int) -> Samples:
        """The samples of one client."""
        return self.members.samples(client)

    def histogram(self, client: int) -> Ints:
        """How many labels of every class a client has."""
        return self.members.histogram(client)

    def fingerprint(self) -> str:
        """The members' own; an overlay that changes data must differ."""
        return self.members.fingerprint()
