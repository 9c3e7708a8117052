"""The files that tell what a folder holds; `spec.yaml` is the one of a run."""

from __future__ import annotations

COMPARISON_SPEC = "comparison.yaml"
TUNING_SPEC = "tuning.yaml"
