"""Client state at a node: by version, merged if two routes have hops there at once, removed when no longer needed."""

from __future__ import annotations

import os

import pytest
import torch

from fedrelay.engines.flower.node.client_state_files import DAYS, ClientStateFiles
from fedrelay.errors import EngineError

RUN = "0123456789abcdef"


@pytest.fixture
def states(tmp_path):
    found = ClientStateFiles(tmp_path / "states")
    for version, value in ((10, 1.0), (11, 3.0), (12, 6.0)):
        found.put(RUN, version, {"control": torch.tensor([value]), "model": torch.tensor([value])})
    return found


def test_state_is_found_by_its_version(states):
    assert states.get(RUN, 11, [], ())["control"].item() == 3
    assert states.get(RUN, 0, [], ()) == {}


def test_changes_of_parallel_hops_add_up(states):
    joined = states.get(RUN, 20, [10, 11, 12], {"control"})
    assert joined["control"].item() == 1 + 2 + 5
    assert joined["model"].item() == 6  # the last one's stays
    states.remove_before(RUN, 13)
    assert states.get(RUN, 20, [10, 11, 12], {"control"})["control"].item() == 8  # it was put together once


def test_parallel_hops_of_a_client_without_state(states):
    assert states.get(RUN, 20, [0, 11, 12], {"control"})["control"].item() == 9


def test_lost_state_is_an_error(states):
    states.remove_before(RUN, 12)
    with pytest.raises(EngineError, match="the state of this client is lost"):
        states.get(RUN, 11, [], ())
    with pytest.raises(EngineError, match="the state of this client is lost"):
        states.get("f" * 16, 12, [], ())


@pytest.mark.parametrize("run", ["", "../../etc/passwd0", "0123456789ABCDEF", "x" * 16])
def test_a_run_is_no_path(states, run):
    with pytest.raises(EngineError, match="run must have 16"):
        states.get(run, 1, [], ())
    with pytest.raises(EngineError, match="run must have 16"):
        states.put(run, 1, {})


def aged(folder, days):
    old = folder.stat().st_mtime - days * 86_400
    os.utime(folder, (old, old))


def test_state_of_abandoned_runs_is_removed(states, tmp_path):
    folder = tmp_path / "states" / RUN
    aged(folder, DAYS - 1)
    ClientStateFiles(tmp_path / "states")
    assert folder.is_dir()
    aged(folder, 2)
    ClientStateFiles(tmp_path / "states", 60)
    assert folder.is_dir()
    ClientStateFiles(tmp_path / "states")
    assert list((tmp_path / "states").iterdir()) == []


def test_a_new_run_removes_abandoned_ones(states, tmp_path):
    aged(tmp_path / "states" / RUN, DAYS + 1)
    states.put("f" * 16, 1, {"control": torch.zeros(1)})
    assert [found.name for found in (tmp_path / "states").iterdir()] == ["f" * 16]


def test_what_is_not_ours_or_cannot_be_removed_stays(states, tmp_path, monkeypatch, caplog):
    own = tmp_path / "states"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").touch()
    (own / ("a" * 16)).symlink_to(tmp_path / "elsewhere")
    (own / "notes").mkdir()
    for found in own.iterdir():
        aged(found, DAYS + 1)

    def full(path):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as broken:
        broken.setattr("fedrelay.engines.flower.node.client_state_files.shutil.rmtree", full)
        ClientStateFiles(own)
    assert "cannot be removed (Permission denied)" in caplog.text
    assert sorted(found.name for found in own.iterdir()) == [f".gone-{RUN}", "a" * 16, "notes"]
    ClientStateFiles(own)  # what was left over goes the next time
    assert sorted(found.name for found in own.iterdir()) == ["a" * 16, "notes"]
    assert (tmp_path / "elsewhere" / "precious").exists()


def test_only_the_owner_can_read_the_folder(tmp_path):
    before = os.umask(0)
    try:
        (tmp_path / "states").mkdir(mode=0o755)
        ClientStateFiles(tmp_path / "states").put(RUN, 1, {"control": torch.zeros(1)})
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "states", tmp_path / "states" / RUN)] == [0o700, 0o700]


def test_a_version_may_be_merged_more_than_once(states):
    assert states.get(RUN, 20, [10, 11, 11, 12, 11], {"control"})["control"].item() == 1 + 2 + 2 + 5 + 2


def test_versions_of_different_methods_cannot_be_merged(states):
    states.put(RUN, 13, {"drift": torch.zeros(1)})
    with pytest.raises(EngineError, match="belongs to different methods"):
        states.get(RUN, 20, [10, 11, 13], {"control"})
