"""Profiles ψ: vectors that describe clients, so that groups can be formed. One file for each profile."""

from typing import Literal

from fedrelay.grouping.profiles.base import Profile, ProfileInputs, ProfileOptions, ProfilingResult, Vectors
from fedrelay.grouping.profiles.classifier import ClassifierProfile
from fedrelay.grouping.profiles.confidence import ConfidenceProfile
from fedrelay.grouping.profiles.histogram import ClassCountsProfile, HistogramProfile
from fedrelay.grouping.profiles.model_weights import WeightsProfile
from fedrelay.grouping.profiles.task2vec import Task2VecProfile

ProfileName = Literal["hist", "counts", "clf", "conf", "t2v", "weights"]

PROFILES: dict[ProfileName, Profile] = {
    "hist": HistogramProfile(),
    "counts": ClassCountsProfile(),
    "clf": ClassifierProfile(),
    "conf": ConfidenceProfile(),
    "t2v": Task2VecProfile(),
    "weights": WeightsProfile(),
}

__all__ = ["PROFILES", "Profile", "ProfileInputs", "ProfileName", "ProfileOptions", "ProfilingResult", "Vectors"]
