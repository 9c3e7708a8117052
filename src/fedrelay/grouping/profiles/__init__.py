"""Profiles ψ: vectors that describe clients, so that groups can be formed. One file for each profile."""

from typing import Literal

from fedrelay.grouping.profiles.base import Profile, ProfileInputs, ProfileOptions, ProfilingResult, Vectors
from fedrelay.grouping.profiles.clf import ClassifierProfile
from fedrelay.grouping.profiles.conf import ConfidenceProfile
from fedrelay.grouping.profiles.hist import CountsProfile, HistogramProfile
from fedrelay.grouping.profiles.t2v import Task2VecProfile
from fedrelay.grouping.profiles.weights import WeightsProfile

ProfileName = Literal["hist", "counts", "clf", "conf", "t2v", "weights"]

PROFILES: dict[ProfileName, Profile] = {
    "hist": HistogramProfile(),
    "counts": CountsProfile(),
    "clf": ClassifierProfile(),
    "conf": ConfidenceProfile(),
    "t2v": Task2VecProfile(),
    "weights": WeightsProfile(),
}

__all__ = ["PROFILES", "Profile", "ProfileInputs", "ProfileName", "ProfileOptions", "ProfilingResult", "Vectors"]
