"""Grouping: clients are described by vectors and put into groups.

Papers: R. Zaccone et al., FedSeq, ICPR 2022 (random, kmeans, greedy, the bounds); S. Zeng et al., FedGSP, DASFAA 2022
(icg); A. Silvi et al., IEEE Access 2024 (norm-cosine, Task2Vec, icg in FedSeq2Par); M. Arafeh et al., WFSL, IEEE 2025
(weights).

Rule: a profile ψ describes every client that has samples by a vector; an assigner φ forms groups. The profiles `hist`
and `counts` are the class histogram. For the others, every client computes something once, before the first round:
`clf` the linear layers and `weights` all weights of a model that it trained a little, `conf` the confidence of such a
model in each class on public samples, `t2v` the importance of the filters of a probe network for its images. The
assigner `random` shuffles; `kmeans` takes clients from clusters of similar clients in turn; `greedy` adds the client
with the largest distance τ from the group. Their groups are complete at `min_samples` or `max_clients`; remaining
clients go to groups with room. `icg` forms a given number of groups of equal size, each with one client of every
cluster. Every client is in one group, unless icg drops it.

Deviations: if no other group has room for the clients of a last, incomplete group, it is kept, and larger groups give
it clients until sizes are as equal as possible. Without `groups`, icg forms as many groups as the bounds require. The
files in `fedrelay/grouping` describe each assigner, distance and profile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import chain
from operator import index
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedrelay.errors import DivergedError, SpecError
from fedrelay.grouping.distances import DISTANCES, DistanceName
from fedrelay.grouping.greedy import GroupVector, Start, greedy_groups
from fedrelay.grouping.group_filling import GroupSizeBounds
from fedrelay.grouping.icg import MOST_AT_ONCE, Leftovers, icg_groups
from fedrelay.grouping.kmeans import Order, groups_across_clusters
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
from fedrelay.user_code import errors_in_own_part, is_built_in

log = logging.getLogger(__name__)

AssignerName = Literal["random", "kmeans", "greedy", "icg"]

OPTIONS: dict[AssignerName, frozenset[str]] = {
    "random": frozenset(),
    "kmeans": frozenset({"profile", "clusters", "order"}),
    "greedy": frozenset({"profile", "distance", "start", "vector", "candidates"}),
    "icg": frozenset({"profile", "groups", "iterations", "leftovers"}),
}
"""The options that each assigner uses, besides the bounds."""

_BOUNDS = frozenset({"max_clients", "min_samples"})

OPTIONS_WITHOUT_COUNT = frozenset({"assign", *OPTIONS["icg"], *ProfileOptions.model_fields}) - {"groups"}
"""The options that have an effect if the route determines the number of groups."""


class Grouping(ProfileOptions):
    """Forms groups of clients.

    `form_groups` computes the profiles of all clients that have samples, then calls `assign_groups`. A subclass
    overrides `assign_groups` to form groups in its own way, or `active_profile` to describe clients in its own way; it
    cannot override `form_groups`. Its pydantic fields are settings: users set them as `grouping.NAME`.

    Example:
        >>> import numpy as np
        >>> import fedrelay as fr
        >>> class PairGrouping(fr.Grouping):
        ...     '''Pairs of clients with similar numbers of samples.'''
        ...
        ...     def assign_groups(self, vectors, sizes, rng, *, classes):
        ...         order = np.argsort(sizes).tolist()
        ...         return tuple(tuple(order[i : i + 2]) for i in range(0, len(order), 2))
    """

    assign: AssignerName = Field("random", description="the assigner: random, kmeans, greedy or icg")
    max_clients: int = Field(11, ge=1, description="the largest number of clients in a group (K_S,max)")
    min_samples: int = Field(800, ge=1, description="a group with this many samples takes no more clients (|D_S|min)")
    profile: ProfileName = Field(
        "hist",
        description="the profile of clients: hist (class shares), counts (samples per class), clf (trained linear "
        "layers), conf (confidence on public samples), t2v (Task2Vec) or weights (trained weights)",
    )
    distance: DistanceName | None = Field(
        None,
        description="greedy: the distance of a client from a group: euclidean, cosine, norm-cosine, kl, gini or "
        "wasserstein; default kl for hist and conf, norm-cosine for t2v, else cosine",
    )
    start: Start = Field(
        "random",
        description="greedy: the first client of a group: random, or uniform (the furthest from uniform classes)",
    )
    vector: GroupVector = Field(
        "samples", description="greedy: the vector of a group: samples (weighted mean), mean, or halving: u ← (u + v)/2"
    )
    candidates: int = Field(
        4000, ge=1, description="greedy: number of clients that are compared at each step; random ones if more are left"
    )
    clusters: int | None = Field(None, ge=1, description="kmeans: number of clusters; default: the number of classes")
    order: Order = Field("random", description="kmeans: which client of a cluster is taken next: random, or last")
    groups: int | None = Field(None, ge=1, description="icg: number of groups; replaces max_clients and min_samples")
    iterations: int = Field(10, ge=1, description="icg: largest number of clustering iterations")
    leftovers: Leftovers = Field(
        "spread",
        description="icg: clients that remain when all groups have the same size: spread over the groups, or drop",
    )

    @model_validator(mode="after")
    def _everything_has_an_effect(self) -> Self:
        used = used_options(self.assign, self.profile, fixed_count=self.groups is not None)
        for name, field in Grouping.model_fields.items():
            if name not in {"assign", *used} and getattr(self, name) != field.default:
                raise ValueError(unused_option(name, self.assign, self.profile))
        if self.standardise and self.variance is None:
            raise ValueError("standardise: has no effect with variance null, because there are no principal components")
        if self.relative and self.variance is not None:
            raise ValueError("relative: has no effect on principal components; set variance to null")
        return self

    @model_validator(mode="after")
    def _profile_and_distance_fit(self) -> Self:
        profile, distance = self.active_profile or PROFILES[self.profile], DISTANCES[self.greedy_distance]
        known = {"probabilities": profile.probabilities, "non_negative": profile.non_negative}
        if self.assign == "greedy" and not distance.accepts(**known):
            allowed = [name for name, each in DISTANCES.items() if each.accepts(**known)]
            raise ValueError(
                f"distance: {self.greedy_distance!r} needs {distance.needs}, but profile {self.profile!r} does not "
                f"give them; allowed: {', '.join(allowed)}"
            )
        if self.start == "uniform" and not profile.probabilities:
            raise ValueError(
                f"start: 'uniform' needs class probabilities, but profile {self.profile!r} does not give them"
            )
        return self

    @property
    def greedy_distance(self) -> DistanceName:
        """The distance that greedy grouping uses."""
        return self.distance or (self.active_profile or PROFILES[self.profile]).default_distance

    @property
    def name(self) -> str:
        """A short name for tables, such as greedy/kl or icg/counts."""
        distance = self.greedy_distance if self.assign == "greedy" else None
        profile = None if self.assign == "random" or self.profile == "hist" else self.profile
        return "/".join(filter(None, (self.assign, distance, profile)))

    @property
    def size_bounds(self) -> GroupSizeBounds:
        return GroupSizeBounds(self.max_clients, self.min_samples)

    @property
    def active_profile(self) -> Profile | None:
        """The profile that describes clients; None if groups do not depend on one."""
        return None if self.assign == "random" else PROFILES[self.profile]

    @property
    def needs_profiling_by_clients(self) -> bool:
        """Whether clients compute something before groups can be formed."""
        return self.active_profile is not None and self.active_profile.computed_by_clients

    @property
    def needs_public(self) -> bool:
        """Whether it uses the public samples."""
        return self.active_profile is not None and self.active_profile.needs_public

    @property
    def needs_class_counts(self) -> bool:
        """Whether clients send the server their number of samples of each class."""
        return self.active_profile is not None and self.active_profile.needs_class_counts

    @property
    def profile_cache_key(self) -> str:
        """Everything that determines the profiles: groupings with the same key can share a `ProfilingResult`."""
        used = {"profile", *self.active_profile.options} if self.active_profile is not None else set()
        return self.model_dump_json(include=used)

    def check_inputs(self, inputs: ProfileInputs) -> None:
        """Refuse data or a model that the profile cannot describe, before any client trains."""
        if self.active_profile is not None:
            self.active_profile.check_inputs(inputs, self)

    def check_fits_route_that_chooses_group_count(self, method: str) -> None:
        """Refuse options that have no effect if the method determines the number of groups."""
        if self.assign != "icg":
            raise SpecError(
                f"grouping.assign: {method!r} determines the number of groups, which needs 'icg', got {self.assign!r}"
            )
        for option, field in Grouping.model_fields.items():
            if option not in OPTIONS_WITHOUT_COUNT and getattr(self, option) != field.default:
                raise SpecError(
                    f"grouping.{option}: has no effect with {method!r}, which determines the number of groups"
                )

    def form_groups(
        self, inputs: ProfileInputs, profiles: ProfilingResult | None = None, *, count: int | None = None, key: int = 1
    ) -> Groups:
        """Divide all clients that have samples into groups.

        Args:
            inputs: The data, and what is needed to run profilers.
            profiles: The result of `profile_clients`, if it is known.
            count: The number of groups, if the route determines it.
            key: A route that forms groups repeatedly uses another key each time.
        """
        sizes = inputs.federation.sample_counts()
        clients = np.flatnonzero(sizes)
        if not len(clients):
            return ()
        if self.assign == "icg" and len(clients) > MOST_AT_ONCE and key == 1:
            log.warning(
                "forming balanced groups of %s clients takes minutes; with grouping.assign=random it takes seconds",
                f"{len(clients):,}",
            )
        vectors = (profiles or self.profile_clients(inputs)).vectors
        rng = generator(inputs.seed, "grouping", *(() if key == 1 else (key,)))
        grouping = self if count is None else self.model_copy(update={"groups": min(count, len(clients))})
        with errors_in_own_part(self, "assign_groups"):
            groups = grouping.assign_groups(vectors, sizes[clients], rng, classes=inputs.federation.class_count)
            if not is_built_in(type(self)):
                groups = checked_groups(groups, len(clients))
        if len(clients) == len(sizes):  # every row number is a client's number
            return groups
        numbers = clients.tolist()
        return tuple(tuple(numbers[row] for row in group) for group in groups)

    def profile_clients(self, inputs: ProfileInputs) -> ProfilingResult:
        """Compute the vectors of all clients that have samples; they are empty for random groups.

        Raises:
            DivergedError: A vector has non-finite values.
        """
        clients = np.flatnonzero(inputs.federation.sample_counts())
        if self.active_profile is None or not len(clients):
            return ProfilingResult(np.empty((len(clients), 0)))
        result = self.active_profile.compute(inputs, clients, self)
        diverged = np.flatnonzero(~np.isfinite(result.vectors).all(axis=1))
        if len(diverged):
            client = clients[diverged[0]]
            raise DivergedError(f"grouping: the profile {self.profile!r} of client {client} has non-finite values")
        return result

    def assign_groups(
        self, vectors: Vectors, sizes: NDArray[np.int64], rng: np.random.Generator, *, classes: int
    ) -> Groups:
        """Divide the rows of `vectors` into groups; every row is one client.

        Args:
            vectors: The profile of each client.
            sizes: The number of samples of each client.
            rng: Generator for all random decisions.
            classes: The number of classes.

        Returns:
            Groups of row numbers. No row is in two groups; a row may be in none.
        """
        match self.assign:
            case "random":
                return random_groups(sizes, self.size_bounds, rng)
            case "kmeans":
                clusters = self.clusters or classes
                return groups_across_clusters(
                    vectors, sizes, self.size_bounds, rng, clusters=clusters, order=self.order
                )
            case "greedy":
                return greedy_groups(
                    vectors,
                    sizes,
                    self.size_bounds,
                    rng,
                    distance=DISTANCES[self.greedy_distance],
                    start=self.start,
                    vector=self.vector,
                    candidates=self.candidates,
                )
            case "icg":
                count = self.groups or default_group_count(sizes, self.size_bounds)
                return icg_groups(vectors, rng, groups=count, leftovers=self.leftovers, iterations=self.iterations)


def checked_groups(groups: Iterable[Iterable[int]], rows: int) -> Groups:
    """Groups of row numbers as plain tuples of plain numbers.

    Args:
        groups: What an assigner returned.
        rows: The number of rows.

    Raises:
        TypeError: A group has other things than whole numbers.
        ValueError: A row does not exist or is in two groups, or a group is empty.
    """
    found = tuple(tuple(map(index, group)) for group in groups)
    if not found or not all(found):
        raise ValueError(f"every group needs a client, got {found}")
    seen: set[int] = set()
    for row in chain.from_iterable(found):
        if not 0 <= row < rows:
            raise ValueError(f"row {row} does not exist; the clients with samples are rows 0 to {rows - 1}")
        if row in seen:
            raise ValueError(f"row {row} is in two groups or twice in one")
        seen.add(row)
    return found


def default_group_count(sizes: NDArray[np.int64], bounds: GroupSizeBounds) -> int:
    """The number of groups that the bounds require: as many as have enough samples, and none with too many clients."""
    by_samples, by_clients = int(sizes.sum()) // bounds.min_samples, -(-len(sizes) // bounds.max_clients)
    return min(len(sizes), max(1, by_samples, by_clients))


def used_options(assign: AssignerName, profile: ProfileName, *, fixed_count: bool) -> frozenset[str]:
    """The options that an assigner and its profile use. `fixed_count`: the number of groups is given."""
    bounds = frozenset() if assign == "icg" and fixed_count else _BOUNDS
    return OPTIONS[assign] | bounds | (frozenset() if assign == "random" else PROFILES[profile].options)


def unused_option(option: str, assign: AssignerName, profile: ProfileName) -> str:
    """The message for an option that has no effect."""
    if option in _BOUNDS:
        return f"{option}: has no effect if the number of groups is given"
    if option in ProfileOptions.model_fields:
        owners = [repr(name) for name, each in PROFILES.items() if option in each.options]
        used = f"assign {assign!r}" if assign == "random" else f"profile {profile!r}"
        return f"{option}: has no effect with {used}; it is an option of profile {', '.join(owners)}"
    owners = [repr(name) for name, options in OPTIONS.items() if option in options]
    return f"{option}: has no effect with assign {assign!r}; it is an option of {', '.join(owners)}"
