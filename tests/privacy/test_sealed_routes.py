"""Sealed experiments that nodes would decline are refused before anything runs, in a simulation as well."""

from __future__ import annotations

import pytest

import fedrelay as fr

SEALED = {"route.handover": "sealed", "clients": 6, "rounds": 4, "fraction": 1.0, "workers": 1}
CHAIN = {"train.chain_schedule": {"name": "linear", "end": 0.01}}


@pytest.mark.parametrize(
    ("method", "settings", "problem"),
    [
        ("fedcyclic", CHAIN, "differ by 10 times at most; or set route.handover=server"),
        (
            "fedcyclic",
            {"train.weight_decay": 20.0},
            "erases more than half of what a client of a sealed route receives",
        ),
        ("fedcyclic+fedprox", {"terms.prox.mu": 5.0}, "pulls to its anchor by up to 0.1 / train.lr; use less"),
        ("fedcyclic+feddyn", {"terms.drift.alpha": 5.0}, "pulls to its anchor by up to 0.1 / train.lr; use less"),
        (
            "fedcyclic+feddyn",
            {"terms.drift": {"alpha": 1.9, "anchor": "round"}},
            "a pull of 1.9 to the round's model erases more than half .* use less, or anchor=recv",
        ),
        ("fedcyclic", {"fraction": 0.2}, "needs 2 clients or more on every route .* has 1 client"),
        ("fedcyclic+scaffold", {"fraction": 0.4}, "needs 3 clients or more on every route .* has 2 clients"),
        ("fedcyclic", {"train.optimizer_state": "payload", "train.optimizer": "adam"}, "shows the last client most"),
        ("spfl+scaffold", {}, "in round 1, where routes share clients that keep state"),
    ],
)
def test_what_nodes_would_decline_is_refused(method, settings, problem):
    with pytest.raises(fr.SpecError, match=problem):
        fr.plan(method, **{**SEALED, **settings})


def test_the_round_with_the_largest_rate_counts():
    """A rate that rises and then falls along a cosine is small in the first and in the last round."""
    decay = {"rounds": 40, "train.weight_decay": 1.0}
    both = {"name": "warmup", "rounds": 20, "then": "cosine"}
    fr.plan("fedcyclic", **{**SEALED, **decay, "train.lr": 0.003})
    with pytest.raises(fr.SpecError, match="erases more than half"):
        fr.plan("fedcyclic", **{**SEALED, **decay, "train.schedule": both})


@pytest.mark.parametrize(
    ("method", "settings", "warning"),
    [
        ("fedcyclic", {}, None),
        ("fedseq", {}, None),
        ("fedcyclic", {"route.order": "complement"}, None),
        ("cwt", {}, "the same clients are always the last"),
        ("fedcyclic", {"route.order": "fixed"}, "the same clients are always the last"),
        ("spfl", {}, "every client is the last of a sealed route in each round"),
    ],
)
def test_clients_that_are_shown_more_than_others_are_warned_of(method, settings, warning, caplog):
    fr.plan(method, **{**SEALED, **settings})
    assert [line for line in caplog.messages if "last" in line] == (
        [] if warning is None else [line for line in caplog.messages if warning in line]
    )
    assert warning is None or warning in caplog.text


def test_in_the_open_nobody_is_warned(caplog):
    fr.plan("spfl", **{**SEALED, "route.handover": "direct"})
    assert "last" not in caplog.text
