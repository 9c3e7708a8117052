"""Profiles ψ: how a client is described to whoever forms the groups. One file for each."""

from typing import Literal

from fedrelay.grouping.profiles.base import Profile, ProfileInputs, ProfileOptions, ProfilingResult, Vectors
from fedrelay.grouping.profiles.clf import CLF
from fedrelay.grouping.profiles.conf import CONF
from fedrelay.grouping.profiles.hist import COUNTS, HIST
from fedrelay.grouping.profiles.t2v import T2V
from fedrelay.grouping.profiles.weights import WEIGHTS

ProfileName = Literal["hist", "counts", "clf", "conf", "t2v", "weights"]

PROFILES: dict[ProfileName, Profile] = {
    "hist": HIST,
    "counts": COUNTS,
    "clf": CLF,
    "conf": CONF,
    "t2v": T2V,
    "weights": WEIGHTS,
}

__all__ = ["PROFILES", "Profile", "ProfileInputs", "ProfileName", "ProfileOptions", "ProfilingResult", "Vectors"]
