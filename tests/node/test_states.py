"""What a client keeps: by turn, joined where two routes visited it at once, gone when nobody will ask."""

from __future__ import annotations

import os

import pytest
import torch

from fedrelay.errors import EngineError
from fedrelay.node.states import FORGOTTEN, States

RUN = "0123456789abcdef"


@pytest.fixture
def states(tmp_path):
    found = States(tmp_path / "states")
    for turn, value in ((10, 1.0), (11, 3.0), (12, 6.0)):
        found.put(RUN, turn, {"control": torch.tensor([value]), "model": torch.tensor([value])})
    return found


def test_what_was_kept_is_found_by_its_turn(states):
    assert states.get(RUN, 11, [], ())["control"].item() == 3
    assert states.get(RUN, 0, [], ()) == {}


def test_changes_of_turns_side_by_side_add_up(states):
    joined = states.get(RUN, 20, [10, 11, 12], {"control"})
    assert joined["control"].item() == 1 + 2 + 5
    assert joined["model"].item() == 6  # the last one's stays
    states.forget_before(RUN, 13)
    assert states.get(RUN, 20, [10, 11, 12], {"control"})["control"].item() == 8  # it was put together once


def test_turns_side_by_side_of_a_client_that_had_nothing(states):
    assert states.get(RUN, 20, [0, 11, 12], {"control"})["control"].item() == 9


def test_what_is_gone_is_said(states):
    states.forget_before(RUN, 12)
    with pytest.raises(EngineError, match="what this client kept is lost"):
        states.get(RUN, 11, [], ())
    with pytest.raises(EngineError, match="what this client kept is lost"):
        states.get("f" * 16, 12, [], ())


@pytest.mark.parametrize("run", ["", "../../etc/passwd0", "0123456789ABCDEF", "x" * 16])
def test_a_run_is_no_path(states, run):
    with pytest.raises(EngineError, match="name of the run"):
        states.get(run, 1, [], ())
    with pytest.raises(EngineError, match="name of the run"):
        states.put(run, 1, {})


def test_runs_that_did_not_go_on_are_forgotten(states, tmp_path):
    folder = tmp_path / "states" / RUN
    States(tmp_path / "states")
    assert folder.is_dir()
    old = folder.stat().st_mtime - FORGOTTEN - 60
    os.utime(folder, (old, old))
    States(tmp_path / "states")
    assert not folder.exists()
