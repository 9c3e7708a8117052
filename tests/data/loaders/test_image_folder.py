from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedrelay.data.registry import DATASETS, load_dataset
from fedrelay.errors import DataError

CLASSES = ("airplane", "automobile", "bird")


def save(path: Path, colour: int | tuple[int, ...], size: tuple[int, int] = (4, 3), mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)


@pytest.fixture
def cinic(tmp_path: Path) -> Path:
    for part, count in (("train", 2), ("valid", 2), ("test", 1)):
        for label, name in enumerate(CLASSES):
            for number in range(count):
                save(tmp_path / part / name / f"{number}.png", (label, number, 9))
    return tmp_path


@pytest.fixture
def domains(tmp_path: Path) -> Path:
    for domain, level in (("art_painting", 10), ("cartoon", 20), ("photo", 30), ("sketch", 40)):
        for label, name in enumerate(("dog", "elephant")):
            for number in range(5):
                save(tmp_path / domain / name / f"{number}.png", (level, label, number))
    return tmp_path


def test_train_and_test_folders(cinic: Path) -> None:
    data = load_dataset("cinic10", cinic)
    assert (data.name, data.kind, data.classes, data.shape) == ("cinic10", "image", 3, (3, 3, 4))
    assert data.x_train.dtype == np.uint8
    assert data.y_train.tolist() == data.x_train[:, 0, 0, 0].tolist() == [0, 0, 1, 1, 2, 2]
    assert data.x_train[:, 1, 2, 3].tolist() == [0, 1] * 3
    assert data.y_test.tolist() == [0, 1, 2]
    assert data.client_train is None
    assert data.scaling is not None
    assert data.scaling.shift == (1.0, 0.5, 9.0)
    assert data.scaling.scale[2] == 0


def test_any_folder_takes_its_own_name(cinic: Path) -> None:
    assert load_dataset("image-folder", cinic).name == cinic.name


def test_domains_are_clients_and_give_a_fifth_to_the_test_part(domains: Path) -> None:
    data = load_dataset("pacs", domains)
    assert (data.name, data.classes, data.shape) == ("pacs", 2, (3, 3, 4))
    assert (len(data.x_train), len(data.x_test)) == (32, 8)
    assert data.client_train is not None
    assert np.bincount(data.client_train).tolist() == [8, 8, 8, 8]
    assert (data.x_train[:, 0, 0, 0] == 10 * (data.client_train + 1)).all()
    assert (data.x_train[:, 1, 0, 0] == data.y_train).all()
    assert np.bincount(data.y_test).tolist() == [4, 4]
    seen = {tuple(x[:, 0, 0]) for x in (*data.x_train, *data.x_test)}
    assert len(seen) == 40
    again = load_dataset("image-folder", domains)
    assert (again.x_test == data.x_test).all()


def test_other_sizes_are_fitted_to_the_most_common_one(cinic: Path) -> None:
    save(cinic / "train" / "bird" / "1.png", (2, 1, 9), size=(40, 30))
    save(cinic / "test" / "bird" / "0.png", (2, 1, 9), size=(1, 1))
    data = load_dataset("cinic10", cinic)
    assert data.shape == (3, 3, 4)
    assert (data.x_train[-1, 0] == 2).all()
    assert (data.x_test[-1, 1] == 1).all()


def test_equally_common_sizes_give_the_wider_one(tmp_path: Path) -> None:
    for number, size in enumerate([(4, 9), (5, 2)]):
        save(tmp_path / "train" / "a" / f"{number}.png", 7, size, "L")
    save(tmp_path / "test" / "a" / "0.png", 7, (50, 20), "L")
    assert load_dataset("image-folder", tmp_path).shape == (1, 2, 5)


def test_grey_images_have_one_channel_unless_there_is_colour(tmp_path: Path) -> None:
    for part in ("train", "test"):
        save(tmp_path / part / "a" / "0.png", 77, mode="L")
        save(tmp_path / part / "a" / "1.png", 1, mode="1")
    data = load_dataset("image-folder", tmp_path)
    assert data.shape == (1, 3, 4)
    assert data.x_train[:, 0, 0, 0].tolist() == [77, 255]
    save(tmp_path / "test" / "a" / "2.png", (1, 2, 3, 255), mode="RGBA")
    data = load_dataset("image-folder", tmp_path)
    assert data.x_train[0, :, 0, 0].tolist() == [77, 77, 77]
    assert data.x_test[2, :, 0, 0].tolist() == [1, 2, 3]


def test_what_is_no_image_by_its_name_is_passed_over(cinic: Path) -> None:
    (cinic / "train" / "bird" / "Thumbs.db").write_text("?")
    (cinic / "train" / "bird" / ".hidden.png").write_text("?")
    (cinic / "train" / ".cache").mkdir()
    (cinic / "notes.txt").write_text("?")
    save(cinic / "train" / "bird" / "photo.JPEG", (2, 2, 9))
    assert len(load_dataset("cinic10", cinic).x_train) == 7


def test_an_unreadable_image_is_named(cinic: Path) -> None:
    path = cinic / "train" / "bird" / "1.png"
    whole = path.read_bytes()
    for content in (b"", b"no image", whole[:40], whole[:50] + bytes(10)):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"train/bird/1\.png: is not a readable image"):
            load_dataset("cinic10", cinic)


def test_deep_pixels_are_refused(cinic: Path) -> None:
    save(cinic / "test" / "bird" / "0.png", 40_000, mode="I;16")
    with pytest.raises(DataError, match=r"bird/0\.png: has the pixel format I;16; only 8 bits per channel"):
        load_dataset("cinic10", cinic)


def test_an_image_of_absurd_size_is_refused(cinic: Path) -> None:
    path = cinic / "train" / "bird" / "1.png"
    content = bytearray(path.read_bytes())
    content[16:24] = b"\x00\x0f\x00\x00" * 2
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"bird/1\.png: is not a readable image"):
        load_dataset("cinic10", cinic)


def test_layouts_that_are_none(tmp_path: Path, cinic: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="empty: needs folders `train/<class>`"):
        load_dataset("image-folder", empty)
    save(empty / "dog" / "1.png", (1, 2, 3))
    with pytest.raises(DataError, match="dog: has no images in class folders"):
        load_dataset("image-folder", empty)
    (cinic / "test").rename(cinic / "elsewhere")
    with pytest.raises(DataError, match="has only one of the folders `train` and `test`"):
        load_dataset("image-folder", cinic)
    assert DATASETS["cinic10"].find(cinic) is None


def test_a_class_of_the_test_part_alone(cinic: Path) -> None:
    save(cinic / "test" / "zebra" / "0.png", (1, 2, 3))
    with pytest.raises(DataError, match=r"test: has the classes \['zebra'\], which are not in train"):
        load_dataset("cinic10", cinic)


def test_too_few_images_for_a_test_part(tmp_path: Path) -> None:
    save(tmp_path / "photo" / "dog" / "0.png", (1, 2, 3))
    with pytest.raises(DataError, match="too few images"):
        load_dataset("image-folder", tmp_path)
