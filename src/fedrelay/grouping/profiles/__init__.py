"""Profiles ψ: how a client is described to whoever forms the groups. One file for each."""

from typing import Literal

from fedrelay.grouping.profiles.base import Evidence, Profile, Vectors
from fedrelay.grouping.profiles.hist import COUNTS, HIST

ProfileName = Literal["hist", "counts"]

PROFILES: dict[ProfileName, Profile] = {"hist": HIST, "counts": COUNTS}

__all__ = ["PROFILES", "Evidence", "Profile", "ProfileName", "Vectors"]
