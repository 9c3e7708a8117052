from __future__ import annotations

import pytest

from fedrelay.errors import RunFolderError
from fedrelay.files import make_folder


def test_a_folder_is_made_where_there_is_none(tmp_path):
    for _ in range(2):
        make_folder(tmp_path / "one/two")
    assert (tmp_path / "one/two").is_dir()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=r"file/below: cannot be created \(Not a directory\)"):
        make_folder(tmp_path / "file/below")
