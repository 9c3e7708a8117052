"""The data sets that FedRelay can read: where they are searched for, and how they are loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedrelay.data.dataset import Dataset
from fedrelay.data.loaders import (
    cifar,
    digits,
    femnist,
    heart_disease,
    idx,
    image_folder,
    npz,
    nsl_kdd,
    shakespeare,
    shapes,
    stackoverflow,
    vowel,
)
from fedrelay.data.search_folders import ROOT_VARIABLE, search_folders
from fedrelay.errors import DataError, SpecError
from fedrelay.experiment.spec import unknown
from fedrelay.files import expand_home


@dataclass(frozen=True)
class DatasetSource:
    """A data set that FedRelay can read.

    `recognise` returns the path to load if a folder or file has the data set, else None; it opens no file. `folders`
    returns the folders to search if no path is given.
    """

    name: str
    summary: str
    files: tuple[str, ...]
    origin: str
    recognise: Callable[[Path], Path | None]
    load: Callable[[Path], Dataset]
    folders: Callable[[], Sequence[Path]]

    def search_paths(self, path: Path | None = None) -> Sequence[Path]:
        """Where the data set is searched for: only at `path`, if it is given."""
        return self.folders() if path is None else [expand_home(path)]

    def find(self, path: Path | None = None) -> Path | None:
        """The first search path that has the data set, or None. Nothing is loaded."""
        for place in self.search_paths(path):
            with suppress(OSError):  # a folder without read permission
                if (location := self.recognise(place)) is not None:
                    return location
        return None


def load_dataset(name: str, path: Path | None = None, task: str | None = None) -> Dataset:
    """Load a data set by name.

    Args:
        name: A name of `DATASETS`, or the path of a `.npz` file.
        path: The folder or file to read; by default the usual folders are searched.
        task: The name of the task, if it is known; it decides how the targets of an `.npz` file are read.

    Raises:
        SpecError: The name is unknown.
        DataError: The data set is missing or damaged.
    """
    if name.endswith(".npz"):
        if path is not None:
            raise SpecError(f"data.path: has no effect, because data.name is the file {name!r}; remove {path}")
        name, path = "npz", Path(name)
    if name not in DATASETS:
        raise SpecError(_unknown(name))
    source = DATASETS[name]
    location = source.find(path)
    if location is None:
        raise DataError(_missing(source, path))
    try:
        return npz.load(location, task) if name == "npz" else source.load(location)
    except (OSError, MemoryError) as error:
        raise DataError(f"{location}: cannot be loaded ({str(error) or type(error).__name__})") from error


def _unknown(name: str) -> str:
    names = unknown("data set", name, [*DATASETS, "table", "synthetic"])
    return f"data.name: {names}, and any .npz, .csv or .parquet file"


def _missing(source: DatasetSource, path: Path | None) -> str:
    places = [_described(place) for place in source.search_paths(path)]
    lines = [
        f"data set {source.name!r} not found",
        f"  files: {', '.join(source.files)}",
        f"  searched: {', '.join(places) or 'nothing, because data.path is not set'}",
        f"  available from: {source.origin}",
    ]
    if path is None and places:
        lines.append(f"  put it there, set ${ROOT_VARIABLE} to the folder that has it, or set data.path")
    return "\n".join(lines)


def _described(place: Path) -> str:
    try:
        return str(place) if place.exists() else f"{place} (does not exist)"
    except OSError as error:
        return f"{place} ({error.strerror})"


_LEAF = "train/*.json and test/*.json of LEAF"

_SOURCES = (
    DatasetSource(
        name="digits",
        summary="8×8 handwritten digits, 1,797 images, 10 classes; always available",
        files=("none: it is part of scikit-learn and has no path",),
        origin="scikit-learn, from the UCI Optical Recognition of Handwritten Digits",
        recognise=digits.recognise,
        load=digits.load,
        folders=digits.package_folder,
    ),
    DatasetSource(
        name="heart-disease",
        summary="920 patients of four hospitals, healthy or ill; clients are hospitals; always available",
        files=heart_disease.FILES,
        origin="UCI Machine Learning Repository, https://doi.org/10.24432/C52P4X (CC BY 4.0)",
        recognise=heart_disease.recognise,
        load=heart_disease.load,
        folders=heart_disease.package_folder,
    ),
    DatasetSource(
        name="shapes",
        summary="16×16 images of discs and squares, a class for each pixel; clients are scanners; always available",
        files=("none: its images are drawn, and it has no path",),
        origin="FedRelay",
        recognise=shapes.recognise,
        load=shapes.load,
        folders=shapes.package_folder,
    ),
    DatasetSource(
        name="mnist",
        summary="28×28 handwritten digits, 70,000 images, 10 classes; clients are writers (QMNIST ids)",
        files=(*(f"{name}[.gz]" for name in idx.FILES), f"optionally {idx.WRITERS}"),
        origin="The MNIST database of LeCun, Cortes and Burges, http://yann.lecun.com/exdb/mnist/",
        recognise=idx.recognise,
        load=partial(idx.load, name="mnist"),
        folders=partial(search_folders, "mnist", unique_files=False),
    ),
    DatasetSource(
        name="fashion-mnist",
        summary="28×28 articles of clothing, 70,000 images, 10 classes",
        files=tuple(f"{name}[.gz]" for name in idx.FILES),
        origin="https://github.com/zalandoresearch/fashion-mnist or Debian's package dataset-fashion-mnist",
        recognise=idx.recognise,
        load=partial(idx.load, name="fashion-mnist"),
        folders=lambda: [*search_folders("fashion-mnist", unique_files=False), idx.DEBIAN_FASHION_MNIST],
    ),
    DatasetSource(
        name="cifar10",
        summary="32×32 colour photographs, 60,000 images, 10 classes",
        files=(f"{cifar.CIFAR10.folder}/", cifar.CIFAR10.archive, "cifar10*.npz"),
        origin="https://www.cs.toronto.edu/~kriz/cifar.html (the Python version)",
        recognise=partial(cifar.recognise, layout=cifar.CIFAR10),
        load=partial(cifar.load, layout=cifar.CIFAR10),
        folders=partial(search_folders, "cifar10"),
    ),
    DatasetSource(
        name="cifar100",
        summary="32×32 colour photographs, 60,000 images, 100 classes",
        files=(f"{cifar.CIFAR100.folder}/", cifar.CIFAR100.archive, "cifar100*.npz"),
        origin="https://www.cs.toronto.edu/~kriz/cifar.html (the Python version)",
        recognise=partial(cifar.recognise, layout=cifar.CIFAR100),
        load=partial(cifar.load, layout=cifar.CIFAR100),
        folders=partial(search_folders, "cifar100"),
    ),
    DatasetSource(
        name="cinic10",
        summary="32×32 colour photographs from CIFAR-10 and ImageNet, 10 classes",
        files=("train/<class>/*.png", "test/<class>/*.png"),
        origin="https://github.com/BayesWatch/cinic-10",
        recognise=image_folder.recognise_cinic10,
        load=partial(image_folder.load, name="cinic10"),
        folders=partial(search_folders, "cinic10"),
    ),
    DatasetSource(
        name="pacs",
        summary="photographs, paintings, cartoons and sketches, 7 classes; clients are domains",
        files=tuple(f"{domain}/<class>/*" for domain in image_folder.PACS_FOLDERS),
        origin="Li, Yang, Song and Hospedales, Deeper, Broader and Artier Domain Generalization (ICCV 2017)",
        recognise=image_folder.recognise_pacs,
        load=partial(image_folder.load, name="pacs"),
        folders=partial(search_folders, "pacs"),
    ),
    DatasetSource(
        name="femnist",
        summary="28×28 handwritten digits and letters, 62 classes; clients are writers",
        files=("femnist*.npz", _LEAF),
        origin="LEAF, https://leaf.cmu.edu",
        recognise=femnist.recognise,
        load=femnist.load,
        folders=partial(search_folders, "femnist", unique_files=False),
    ),
    DatasetSource(
        name="shakespeare",
        summary="the next character of Shakespeare's plays, 80 tokens; clients are speaking roles",
        files=("shakespeare*.jsonl[.gz]", _LEAF),
        origin="LEAF, https://leaf.cmu.edu, or the plays as one JSON object per role",
        recognise=shakespeare.recognise,
        load=shakespeare.load,
        folders=partial(search_folders, "shakespeare", unique_files=False),
    ),
    DatasetSource(
        name="stackoverflow",
        summary="the next word of questions and answers, 10,004 tokens; clients are users (needs h5py)",
        files=(stackoverflow.TRAIN, stackoverflow.TEST),
        origin="TensorFlow Federated, tff.simulation.datasets.stackoverflow",
        recognise=stackoverflow.recognise,
        load=stackoverflow.load,
        folders=partial(search_folders, "stackoverflow"),
    ),
    DatasetSource(
        name="vowel",
        summary="11 vowels as 10 features, 990 samples; clients are 15 speakers",
        files=(vowel.FILE,),
        origin="UCI Machine Learning Repository, Connectionist Bench (Vowel Recognition, Deterding data)",
        recognise=vowel.recognise,
        load=vowel.load,
        folders=partial(search_folders, "vowel"),
    ),
    DatasetSource(
        name="nsl-kdd",
        summary="network connections, 23 kinds of traffic, 148,517 rows",
        files=(f"{nsl_kdd.TRAIN}[.gz]", f"{nsl_kdd.TEST}[.gz]"),
        origin="University of New Brunswick, https://www.unb.ca/cic/datasets/nsl.html",
        recognise=nsl_kdd.recognise,
        load=nsl_kdd.load,
        folders=partial(search_folders, "nsl-kdd"),
    ),
    DatasetSource(
        name="nsl-kdd-binary",
        summary="the rows of nsl-kdd, normal or attack",
        files=(f"{nsl_kdd.TRAIN}[.gz]", f"{nsl_kdd.TEST}[.gz]"),
        origin="University of New Brunswick, https://www.unb.ca/cic/datasets/nsl.html",
        recognise=nsl_kdd.recognise,
        load=nsl_kdd.load_binary,
        folders=partial(search_folders, "nsl-kdd"),
    ),
    DatasetSource(
        name="image-folder",
        summary="any folder of images, by train/test or domain, then class; needs data.path",
        files=("train/<class>/* and test/<class>/*", "or <domain>/<class>/*"),
        origin="your own files",
        recognise=image_folder.recognise,
        load=image_folder.load,
        folders=list,
    ),
    DatasetSource(
        name="npz",
        summary="any NumPy archive of images, volumes or tables; needs data.path",
        files=(f"a .npz file with {', '.join(npz.KEYS)} and optionally client_train",),
        origin="your own files",
        recognise=npz.recognise,
        load=npz.load,
        folders=list,
    ),
)

DATASETS: dict[str, DatasetSource] = {source.name: source for source in _SOURCES}
