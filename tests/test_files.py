from __future__ import annotations

import os
import time

import pytest

from fedrelay.errors import RunFolderError
from fedrelay.files import keep_latest, make_folder, mark_as_latest


def test_a_folder_is_made_where_there_is_none(tmp_path):
    for _ in range(2):
        make_folder(tmp_path / "one/two")
    assert (tmp_path / "one/two").is_dir()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=r"file/below: cannot be created \(Not a directory\)"):
        make_folder(tmp_path / "file/below")


def test_the_latest_file_stays_though_the_clock_was_set_back(tmp_path):
    tomorrow = time.time() + 86_400
    files = [tmp_path / name for name in "abcd"]
    for number, file in enumerate(files):
        file.touch()
        os.utime(file, (tomorrow + number, tomorrow + number))
    mark_as_latest(files[0], files)
    keep_latest(files, 2)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "a", tmp_path / "d"]
