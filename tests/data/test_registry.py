from pathlib import Path

import numpy as np
import pytest

from fedrelay.data.loaders import idx, image_folder
from fedrelay.data.registry import DATASETS, load_dataset
from fedrelay.errors import DataError, SpecError

EMBEDDED = {"digits", "heart-disease", "shapes"}
NAMES = {
    *EMBEDDED,
    "mnist",
    "fashion-mnist",
    "cifar10",
    "cifar100",
    "cinic10",
    "pacs",
    "femnist",
    "shakespeare",
    "stackoverflow",
    "vowel",
    "nsl-kdd",
    "nsl-kdd-binary",
    "image-folder",
    "npz",
}


@pytest.fixture(autouse=True)
def _empty_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDRELAY_DATA", str(tmp_path / "root"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "mine.npz"
    table = np.zeros((2, 3), np.float32)
    np.savez(path, x_train=table, y_train=[0, 1], x_test=table, y_test=[1, 0])
    return path


def test_every_source_bears_its_own_name() -> None:
    assert set(DATASETS) == NAMES
    assert all(source.name == name for name, source in DATASETS.items())


@pytest.mark.parametrize("source", DATASETS.values(), ids=DATASETS)
def test_the_table_has_one_line_for_each_source(source) -> None:
    assert source.summary
    assert "\n" not in source.summary
    assert len(source.summary) < 100
    assert source.files
    assert source.origin


def test_an_empty_machine_has_only_the_embedded_data_and_perhaps_debians_fashion_mnist() -> None:
    found = {name for name, source in DATASETS.items() if source.find() is not None}
    assert found - {"fashion-mnist"} == EMBEDDED


@pytest.mark.parametrize(
    ("name", "files", "found"),
    [
        ("mnist", [f"{file}.gz" for file in idx.FILES], ""),
        ("cifar10", ["cifar-10-python.tar.gz"], "cifar-10-python.tar.gz"),
        ("cifar100", ["cifar-100-python/train", "cifar-100-python/test"], "cifar-100-python"),
        ("cinic10", ["train/airplane/1.png", "test/airplane/1.png"], ""),
        ("pacs", [f"kfold/{domain}/dog/1.jpg" for domain in image_folder.PACS_FOLDERS], "kfold"),
        ("femnist", ["data/train/a.json", "data/test/a.json"], "data"),
        ("shakespeare", ["shakespeare_plays.jsonl.gz"], "shakespeare_plays.jsonl.gz"),
        ("stackoverflow", ["stackoverflow_train.h5", "stackoverflow_test.h5"], ""),
        ("nsl-kdd-binary", ["KDDTrain+.txt", "KDDTest+.txt.gz"], ""),
    ],
)
def test_finding_looks_at_names_alone(name: str, files: list[str], found: str, tmp_path: Path) -> None:
    folder = tmp_path / "root" / name.removesuffix("-binary")
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    assert DATASETS[name].find() == folder / found


@pytest.mark.parametrize(("name", "nearest"), [("minst", "mnist"), ("CIFAR-10", "cifar10"), ("nslkdd", "nsl-kdd")])
def test_an_unknown_name_gets_the_nearest_and_the_list(name: str, nearest: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_dataset(name)
    message = str(caught.value)
    assert repr(name) in message
    assert f"did you mean '{nearest}" in message
    assert all(known in message for known in NAMES)


@pytest.mark.parametrize("name", sorted(NAMES - {*EMBEDDED, "fashion-mnist", "npz", "image-folder"}))
def test_a_missing_data_set_says_what_was_sought_where_and_whence(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load_dataset(name)
    message = str(caught.value)
    assert all(file in message for file in DATASETS[name].files)
    assert DATASETS[name].origin in message
    folder = name.removesuffix("-binary")
    assert f"{tmp_path / 'root' / folder} (does not exist)" in message
    assert str(tmp_path / "cache" / "fedrelay" / folder) in message


@pytest.mark.parametrize("name", ["npz", "image-folder"])
def test_a_data_set_that_needs_a_path_says_so(name: str) -> None:
    with pytest.raises(DataError, match=r"data\.path is not set"):
        load_dataset(name)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_path_replaces_the_search(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load_dataset(name, tmp_path / "nowhere")
    assert f"searched: {tmp_path / 'nowhere'} (does not exist)" in str(caught.value)
    assert "cache" not in str(caught.value)


def test_the_digits_take_no_path(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no path"):
        load_dataset("digits", tmp_path)


def test_the_name_of_an_archive_is_a_data_set(archive: Path) -> None:
    assert load_dataset(str(archive)).name == load_dataset("npz", archive).name == "mine"
    with pytest.raises(SpecError, match=r"data\.path: has no effect"):
        load_dataset(str(archive), archive)
    with pytest.raises(DataError, match=r"gone\.npz \(does not exist\)"):
        load_dataset("gone.npz")


def test_a_folder_that_may_not_be_entered_counts_as_empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(_path: Path, **_options: bool) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    monkeypatch.setattr(Path, "exists", refuse)
    assert DATASETS["mnist"].find(tmp_path) is None
    with pytest.raises(DataError, match="Permission denied"):
        load_dataset("mnist", tmp_path)


def test_the_first_folder_of_the_search_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, archive: Path) -> None:
    source = DATASETS["femnist"]
    folders = [tmp_path / "root" / "femnist", tmp_path / "cache" / "fedrelay" / "femnist"]
    for folder in reversed(folders):
        folder.mkdir(parents=True)
        (folder / "femnist.npz").write_bytes(archive.read_bytes())
        assert source.find() == folder / "femnist.npz"


def test_memory_running_out_is_reported_not_raised(monkeypatch: pytest.MonkeyPatch, archive: Path) -> None:
    def exhausted(*_arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr("fedrelay.data.loaders.npz.checked_labels", exhausted)
    with pytest.raises(DataError, match=r"mine\.npz: cannot be loaded \(MemoryError\)"):
        load_dataset("npz", archive)
