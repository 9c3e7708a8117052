from pathlib import Path

import pytest

from fedrelay.data.search_folders import plain_or_gzip, search_folders


def test_the_data_root_comes_before_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDRELAY_DATA", "/data")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert search_folders("cifar10") == [
        Path("/data/cifar10"),
        Path("/data"),
        Path("/cache/fedrelay/cifar10"),
    ]


def test_a_root_with_anonymous_files_counts_only_under_the_name_of_the_data_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FEDRELAY_DATA", "/data/mnist")
    assert Path("/data/mnist") in search_folders("mnist", unique_files=False)
    assert Path("/data/mnist") not in search_folders("fashion-mnist", unique_files=False)


@pytest.mark.parametrize("root", [None, ""])
def test_without_a_root_only_the_cache_is_searched(monkeypatch: pytest.MonkeyPatch, root: str | None) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    if root is None:
        monkeypatch.delenv("FEDRELAY_DATA", raising=False)
    else:
        monkeypatch.setenv("FEDRELAY_DATA", root)
    assert search_folders("mnist") == [Path("/home/somebody/.cache/fedrelay/mnist")]


def test_a_home_sign_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("FEDRELAY_DATA", "~/sets")
    assert search_folders("mnist")[0] == Path("/home/somebody/sets/mnist")


def test_the_plain_file_is_preferred_to_the_compressed_one(tmp_path: Path) -> None:
    assert plain_or_gzip(tmp_path, "a.txt") is None
    (tmp_path / "a.txt.gz").touch()
    assert plain_or_gzip(tmp_path, "a.txt") == tmp_path / "a.txt.gz"
    (tmp_path / "a.txt").touch()
    assert plain_or_gzip(tmp_path, "a.txt") == tmp_path / "a.txt"
