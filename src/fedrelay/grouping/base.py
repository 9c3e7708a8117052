"""Who travels with whom: clients are described by vectors and put into groups.

Papers: R. Zaccone et al., FedSeq, ICPR 2022 (random, kmeans, greedy, the bounds); S. Zeng et al., FedGSP, DASFAA 2022
(icg); A. Silvi et al., IEEE Access 2024 (norm-cosine, Task2Vec, icg in FedSeq2Par); M. Arafeh et al., WFSL, IEEE 2025
(weights).

Rule: a profile ψ describes every client that holds data, an assigner φ forms groups. `hist` and `counts` are the true
class histogram; for the others every client computes something once, before the first round: `clf` the linear layers
and `weights` all weights of a model it has trained a little, `conf` how sure such a model is of every class on public
samples, `t2v` which filters of a probe network matter for its images. `random` shuffles. `kmeans`
takes one client after another from clusters of clients that are alike. `greedy` adds the client with the highest
distance τ from the group. Their groups are closed at `min_samples` or `max_clients`; leftovers go to the groups with
room. `icg` makes a given number of equal groups, each with one client of every cluster. Every client is in one group,
unless icg drops it.

Deviations: a last group that is too small stays where no other has room. Without `groups`, icg makes as many as the
bounds ask for. More on each rule in the files bounds, random, kmeans, greedy, distances and icg beside this one, and on
each profile in the folder profiles.
"""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedrelay.errors import DivergedError, SpecError
from fedrelay.grouping.bounds import Bounds
from fedrelay.grouping.distances import DISTANCES, DistanceName
from fedrelay.grouping.greedy import GroupVector, Start, greedy_groups
from fedrelay.grouping.icg import Leftovers, icg_groups
from fedrelay.grouping.kmeans import Order, kmeans_groups
from fedrelay.grouping.profiles import (
    PROFILES,
    Profile,
    ProfileInputs,
    ProfileName,
    ProfileOptions,
    ProfilingResult,
    Vectors,
)
from fedrelay.grouping.random import random_groups
from fedrelay.rng import generator
from fedrelay.routes.base import Groups

AssignerName = Literal["random", "kmeans", "greedy", "icg"]

OPTIONS: dict[AssignerName, frozenset[str]] = {
    "random": frozenset(),
    "kmeans": frozenset({"profile", "clusters", "order"}),
    "greedy": frozenset({"profile", "distance", "start", "vector", "candidates"}),
    "icg": frozenset({"profile", "groups", "iterations", "leftovers"}),
}
"""What each assigner looks at besides the bounds."""

_BOUNDS = frozenset({"max_clients", "min_samples"})

COUNTED = frozenset({"assign", *OPTIONS["icg"], *ProfileOptions.model_fields}) - {"groups"}
"""What is looked at where the method says itself how many groups there are."""


class Grouping(ProfileOptions):
    """How groups are formed, and the bounds they keep."""

    assign: AssignerName = Field("random", description="how groups are formed: random, kmeans, greedy or icg")
    max_clients: int = Field(11, ge=1, description="a group with this many clients is closed (K_S,max)")
    min_samples: int = Field(800, ge=1, description="a group with this many samples is closed (|D_S|min)")
    profile: ProfileName = Field(
        "hist",
        description="how clients are described: hist (class shares), counts (samples per class), clf (trained linear "
        "layers), conf (confidence on public samples), t2v (Task2Vec) or weights (trained weights)",
    )
    distance: DistanceName | None = Field(
        None,
        description="greedy: what the next client is chosen by: euclidean, cosine, norm-cosine, kl, gini or "
        "wasserstein; default kl for class probabilities, norm-cosine for t2v, else cosine",
    )
    start: Start = Field(
        "random", description="greedy: a group's first client, random or the best complement of uniform classes"
    )
    vector: GroupVector = Field(
        "samples", description="greedy: a group's vector: mean by samples, plain mean, or halving, u ← (u + v)/2"
    )
    candidates: int = Field(
        4000, ge=1, description="greedy: clients looked at for each place; random ones where more are left"
    )
    clusters: int | None = Field(None, ge=1, description="kmeans: clusters; default one for each class")
    order: Order = Field("random", description="kmeans: which client of a cluster is next, a random one or the last")
    groups: int | None = Field(
        None, ge=1, description="icg: the number of groups, instead of max_clients and min_samples"
    )
    iterations: int = Field(10, ge=1, description="icg: the most rounds of clustering")
    leftovers: Leftovers = Field(
        "spread", description="icg: clients that are too few for one more in every group: spread, or drop"
    )

    @model_validator(mode="after")
    def _everything_has_an_effect(self) -> Self:
        taken = effective_options(self.assign, self.profile, counted=self.groups is not None)
        for name, field in type(self).model_fields.items():
            if name not in {"assign", *taken} and getattr(self, name) != field.default:
                raise ValueError(without_effect(name, self.assign, self.profile))
        if self.standardise and self.variance is None:
            raise ValueError("standardise: has no effect without principal components (variance null)")
        if self.relative and self.variance is not None:
            raise ValueError(
                "relative: has no effect on principal components, which are centred; it needs variance null"
            )
        return self

    @model_validator(mode="after")
    def _profile_and_distance_fit(self) -> Self:
        profile, distance = PROFILES[self.profile], DISTANCES[self.tau]
        known = {"probabilities": profile.probabilities, "non_negative": profile.non_negative}
        if self.assign == "greedy" and not distance.accepts(**known):
            fitting = [name for name, each in DISTANCES.items() if each.accepts(**known)]
            raise ValueError(
                f"distance: {self.tau!r} needs {distance.needs}, which profile {self.profile!r} does not give; "
                f"allowed: {', '.join(fitting)}"
            )
        if self.start == "uniform" and not profile.probabilities:
            raise ValueError(f"start: 'uniform' needs class probabilities, not given by profile {self.profile!r}")
        return self

    @property
    def tau(self) -> DistanceName:
        """The distance of greedy grouping."""
        return self.distance or PROFILES[self.profile].usual_distance

    @property
    def name(self) -> str:
        """What tables call it, such as greedy/kl or icg/counts."""
        distance = self.tau if self.assign == "greedy" else None
        profile = None if self.assign == "random" or self.profile == "hist" else self.profile
        return "/".join(filter(None, (self.assign, distance, profile)))

    @property
    def bounds(self) -> Bounds:
        """When a group is closed."""
        return Bounds(self.max_clients, self.min_samples)

    @property
    def psi(self) -> Profile | None:
        """The profile, if groups depend on one."""
        return None if self.assign == "random" else PROFILES[self.profile]

    @property
    def trains(self) -> bool:
        """Whether clients have to compute something before groups can be formed."""
        return self.psi is not None and self.psi.trained

    @property
    def needs_public(self) -> bool:
        """Whether it looks at the public set."""
        return self.psi is not None and self.psi.needs_public

    @property
    def needs_histograms(self) -> bool:
        """Whether clients have to tell the server how many samples of every class they hold."""
        return self.psi is not None and self.psi.needs_histograms

    @property
    def description(self) -> str:
        """What decides on the vectors of clients: groupings that agree in it can share a survey."""
        looked_at = {"profile", *self.psi.options} if self.psi is not None else set()
        return self.model_dump_json(include=looked_at)

    def check(self, evidence: ProfileInputs) -> None:
        """Refuse data or a model that cannot be described, before anybody trains."""
        if self.psi is not None:
            self.psi.check(evidence, self)

    def check_counted(self, method: str) -> None:
        """Refuse what does not go with a method that says itself how many groups there are."""
        if self.assign != "icg":
            raise SpecError(f"grouping.assign: {method!r} says how many groups there are, which icg alone can make")
        for option, field in type(self).model_fields.items():
            if option not in COUNTED and getattr(self, option) != field.default:
                raise SpecError(
                    f"grouping.{option}: has no effect with {method!r}, which says how many groups there are"
                )

    def form(
        self, evidence: ProfileInputs, survey: ProfilingResult | None = None, *, count: int | None = None, key: int = 1
    ) -> Groups:
        """A partition of all clients that hold data (but for those that icg may drop), by a survey if given.

        A method that forms groups again and again says how many, and under which key.
        """
        sizes = evidence.federation.sizes()
        holders = np.flatnonzero(sizes)
        if not len(holders):
            return ()
        vectors = (survey or self.survey(evidence)).vectors
        rng = generator(evidence.seed, "grouping", *(() if key == 1 else (key,)))
        way = self if count is None else self.model_copy(update={"groups": min(count, len(holders))})
        groups = way.arrange(vectors, sizes[holders], rng, classes=evidence.federation.classes)
        return tuple(tuple(holders[list(group)].tolist()) for group in groups)

    def survey(self, evidence: ProfileInputs) -> ProfilingResult:
        """The vectors of all clients that hold data; random groups need none."""
        clients = np.flatnonzero(evidence.federation.sizes())
        if self.psi is None or not len(clients):
            return ProfilingResult(np.empty((len(clients), 0)))
        found = self.psi.describe(evidence, clients, self)
        broken = np.flatnonzero(~np.isfinite(found.vectors).all(axis=1))
        if len(broken):
            raise DivergedError(f"grouping: the profile {self.profile!r} of client {clients[broken[0]]} is not finite")
        return found

    def arrange(self, vectors: Vectors, sizes: NDArray[np.int64], rng: np.random.Generator, *, classes: int) -> Groups:
        """Groups of the rows of `vectors`, each a client with so many samples."""
        match self.assign:
            case "random":
                return random_groups(sizes, self.bounds, rng)
            case "kmeans":
                clusters = self.clusters or classes
                return kmeans_groups(vectors, sizes, self.bounds, rng, clusters=clusters, order=self.order)
            case "greedy":
                return greedy_groups(
                    vectors,
                    sizes,
                    self.bounds,
                    rng,
                    distance=DISTANCES[self.tau],
                    start=self.start,
                    vector=self.vector,
                    candidates=self.candidates,
                )
            case "icg":
                count = self.groups or usual_count(sizes, self.bounds)
                return icg_groups(vectors, rng, groups=count, leftovers=self.leftovers, iterations=self.iterations)


def usual_count(sizes: NDArray[np.int64], bounds: Bounds) -> int:
    """The number of groups that bounds ask for: as many as have enough samples, and none with too many clients."""
    enough_samples, few_clients = int(sizes.sum()) // bounds.min_samples, -(-len(sizes) // bounds.max_clients)
    return min(len(sizes), max(1, enough_samples, few_clients))


def effective_options(assign: AssignerName, profile: ProfileName, *, counted: bool) -> frozenset[str]:
    """The options an assigner and its profile look at; `counted` says that the number of groups is given."""
    bounds = frozenset() if assign == "icg" and counted else _BOUNDS
    return OPTIONS[assign] | bounds | (frozenset() if assign == "random" else PROFILES[profile].options)


def without_effect(option: str, assign: AssignerName, profile: ProfileName) -> str:
    """Why an option is refused."""
    if option in _BOUNDS:
        return f"{option}: has no effect where the number of groups is given"
    if option in ProfileOptions.model_fields:
        owners = [repr(name) for name, each in PROFILES.items() if option in each.options]
        chosen = f"assign {assign!r}" if assign == "random" else f"profile {profile!r}"
        return f"{option}: has no effect with {chosen}; it is an option of profile {', '.join(owners)}"
    owners = [repr(name) for name, options in OPTIONS.items() if option in options]
    return f"{option}: has no effect with assign {assign!r}; it is an option of {', '.join(owners)}"
