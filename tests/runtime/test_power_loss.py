"""A loss of power at any moment of a run: what a checkpoint has committed is never lost, and never changed."""

from __future__ import annotations

import shutil

import pytest
from tests.damage import cases
from tests.power_loss import Disk, recorded, write_tree
from tests.runtime.eight_clients import federation, network

import fedrelay as fr
from fedrelay.runtime.run_folder import RunFolder
from fedrelay.runtime.run_folder_reader import RunFolderReader

SETTINGS = {"fraction": 0.4, "batch_size": 4, "workers": 1, "seed": 5}
EVERY_ROUND = {"rounds": 2, "checkpoint": {"seconds": 0}}
AT_THE_END = {"rounds": 3, "checkpoint": {"seconds": 1000}}
PLACE = "some/run"

NOT_BEGUN = (
    "there is no such run folder",
    "is not a run folder (run.json is missing)",
)
"""What `resume` says of a run whose first file did not reach the disk; it can be started again."""


@pytest.fixture(scope="module")
def data():
    return federation()


@pytest.fixture(scope="module")
def one(tmp_path_factory, data):
    return recorded_run(tmp_path_factory.mktemp("disk"), data, EVERY_ROUND)


def recorded_run(root, data, settings):
    """The disk of a run with client state, which notes the rounds that it has promised to keep, and its weights."""
    save = RunFolder.save
    with recorded(root) as disk, pytest.MonkeyPatch.context() as patch:

        def saved(folder, state, client_files=()):
            save(folder, state, client_files)
            disk.promise(state.round)

        patch.setattr(RunFolder, "save", saved)
        result = fr.run("scaffold", data=data, model=network(), out=root / PLACE, **SETTINGS, **settings)
    return disk, result.weights_sha256


def what_is_wrong(root, data, rounds, weights_sha256):
    """What `resume` makes of the folder that is left; empty if it is fair. `rounds` are those that were promised."""
    folder = root / PLACE
    try:
        kept = RunFolderReader.open(folder).saved_round
        result = fr.resume(folder, data=data, model=network())
    except fr.RunFolderError as error:
        if rounds or not str(error).endswith(NOT_BEGUN):
            return f"refused after round {max(rounds, default='none')}: {error}"
        RunFolder.check(folder)  # the same command starts it again
        return ""
    if kept < max(rounds, default=0):
        return f"round {max(rounds)} is lost, {kept} is left"
    return "" if result.weights_sha256 == weights_sha256 else "other weights"


def problems(disk: Disk, data, weights_sha256, place, states, ignored=lambda node: False):
    for when, tree in disk.crashes(states, ignored=ignored):
        write_tree(tree, place)
        if found := what_is_wrong(place, data, disk.promised(when), weights_sha256):
            yield f"after {when} of {len(disk.operations)} operations: {found}"
        shutil.rmtree(place)


def test_a_run_survives_a_loss_of_power_at_any_moment(one, data, tmp_path):
    disk, weights_sha256 = one
    assert disk.promised(len(disk.operations)) == [0, 1, 2, 2]
    assert list(problems(disk, data, weights_sha256, tmp_path / "left", states=len(cases(30)))) == []


def test_lines_after_the_checkpoint_may_be_there_in_part(data, tmp_path):
    """Lines of several rounds are on their way to the disk, and arrive in any order."""
    disk, weights_sha256 = recorded_run(tmp_path / "disk", data, AT_THE_END)
    assert disk.promised(len(disk.operations)) == [0, 3]
    assert list(problems(disk, data, weights_sha256, tmp_path / "left", states=len(cases(20)))) == []


@pytest.mark.parametrize(
    "flushed",
    [
        lambda name, folder: not folder,
        lambda name, folder: folder,
        lambda name, folder: not name.endswith(".jsonl"),
        lambda name, folder: name != "some",
    ],
    ids=["no folder", "no file", "no appended line", "not the folder of the run folder"],
)
def test_the_test_notices_what_is_not_flushed(one, data, tmp_path, flushed):
    disk, weights_sha256 = one
    names = {node: name for name, node in disk.names()}
    found = problems(
        disk, data, weights_sha256, tmp_path / "left", 30, lambda node: not flushed(names[node], node in disk.folders)
    )
    assert next(found, "") != ""
