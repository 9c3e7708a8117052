"""The data sets that FedRelay can read, by name: where they are looked for, and how they are loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedrelay.data.dataset import Dataset
from fedrelay.data.loaders import (
    cifar,
    digits,
    femnist,
    idx,
    image_folder,
    npz,
    nsl_kdd,
    shakespeare,
    stackoverflow,
)
from fedrelay.data.locate import ROOT_VARIABLE, search_folders
from fedrelay.errors import DataError, SpecError
from fedrelay.experiment.spec import unknown
from fedrelay.files import home_written_out


@dataclass(frozen=True)
class Source:
    """One readable data set.

    `recognise` says what there is to load at a folder or file, or None; it opens nothing.
    `folders` gives the folders to search when no path is given.
    """

    name: str
    summary: str
    files: tuple[str, ...]
    origin: str
    recognise: Callable[[Path], Path | None]
    load: Callable[[Path], Dataset]
    folders: Callable[[], Sequence[Path]]

    def places(self, path: Path | None = None) -> Sequence[Path]:
        """Where the data set is looked for: at `path` alone, if it is given."""
        return self.folders() if path is None else [home_written_out(path)]

    def find(self, path: Path | None = None) -> Path | None:
        """The first place that has the data set, without loading it."""
        found = (self._recognise_safely(place) for place in self.places(path))
        return next((location for location in found if location is not None), None)

    def _recognise_safely(self, place: Path) -> Path | None:
        try:
            return self.recognise(place)
        except OSError:  # a folder that may not be entered has nothing for us
            return None


def load_dataset(name: str, path: Path | None = None) -> Dataset:
    """The data set `name`, searched for in the usual folders or taken from `path` (a folder or file).

    The name of a `.npz` file is a data set too.
    """
    if name.endswith(".npz"):
        if path is not None:
            raise SpecError(f"the data set {name!r} is a file already; it takes no path ({path})")
        name, path = "npz", Path(name)
    if name not in DATASETS:
        raise SpecError(_unknown(name))
    source = DATASETS[name]
    location = source.find(path)
    if location is None:
        raise DataError(_missing(source, path))
    try:
        return source.load(location)
    except (OSError, MemoryError) as error:
        raise DataError(f"{location}: cannot be loaded ({str(error) or type(error).__name__})") from error


def _unknown(name: str) -> str:
    return f"data.name: {unknown('data set', name, [*DATASETS, 'synthetic'])}, and any .npz file"


def _missing(source: Source, path: Path | None) -> str:
    places = [_described(place) for place in source.places(path)]
    lines = [
        f"the data set {source.name!r} was not found",
        f"  looked for: {', '.join(source.files)}",
        f"  in: {', '.join(places) or 'no folder, because it needs a path'}",
        f"  it comes from: {source.origin}",
    ]
    if path is None and places:
        lines.append(f"  put it there, set ${ROOT_VARIABLE} to the folder that has it, or give its path")
    return "\n".join(lines)


def _described(place: Path) -> str:
    try:
        return str(place) if place.exists() else f"{place} (does not exist)"
    except OSError as error:
        return f"{place} ({error.strerror})"


_LEAF = "train/*.json and test/*.json of LEAF"

_SOURCES = (
    Source(
        name="digits",
        summary="8×8 handwritten digits, 1,797 images, 10 classes; always there",
        files=("nothing: it comes with scikit-learn and takes no path",),
        origin="scikit-learn, from the UCI Optical Recognition of Handwritten Digits",
        recognise=digits.recognise,
        load=digits.load,
        folders=digits.home,
    ),
    Source(
        name="mnist",
        summary="28×28 handwritten digits, 70,000 images, 10 classes; by writer with the QMNIST writer ids",
        files=(*(f"{name}[.gz]" for name in idx.FILES), f"optionally {idx.WRITERS}"),
        origin="The MNIST database of LeCun, Cortes and Burges, http://yann.lecun.com/exdb/mnist/",
        recognise=idx.recognise,
        load=partial(idx.load, name="mnist"),
        folders=partial(search_folders, "mnist", telling_files=False),
    ),
    Source(
        name="fashion-mnist",
        summary="28×28 articles of clothing, 70,000 images, 10 classes",
        files=tuple(f"{name}[.gz]" for name in idx.FILES),
        origin="https://github.com/zalandoresearch/fashion-mnist or Debian's package dataset-fashion-mnist",
        recognise=idx.recognise,
        load=partial(idx.load, name="fashion-mnist"),
        folders=lambda: [*search_folders("fashion-mnist", telling_files=False), idx.DEBIAN_FASHION_MNIST],
    ),
    Source(
        name="cifar10",
        summary="32×32 colour photographs, 60,000 images, 10 classes",
        files=(f"{cifar.CIFAR10.folder}/", cifar.CIFAR10.archive, "cifar10*.npz"),
        origin="https://www.cs.toronto.edu/~kriz/cifar.html (the Python version)",
        recognise=partial(cifar.recognise, layout=cifar.CIFAR10),
        load=partial(cifar.load, layout=cifar.CIFAR10),
        folders=partial(search_folders, "cifar10"),
    ),
    Source(
        name="cifar100",
        summary="32×32 colour photographs, 60,000 images, 100 classes",
        files=(f"{cifar.CIFAR100.folder}/", cifar.CIFAR100.archive, "cifar100*.npz"),
        origin="https://www.cs.toronto.edu/~kriz/cifar.html (the Python version)",
        recognise=partial(cifar.recognise, layout=cifar.CIFAR100),
        load=partial(cifar.load, layout=cifar.CIFAR100),
        folders=partial(search_folders, "cifar100"),
    ),
    Source(
        name="cinic10",
        summary="32×32 colour photographs from CIFAR-10 and ImageNet, 10 classes",
        files=("train/<class>/*.png", "test/<class>/*.png"),
        origin="https://github.com/BayesWatch/cinic-10",
        recognise=image_folder.recognise_cinic10,
        load=partial(image_folder.load, name="cinic10"),
        folders=partial(search_folders, "cinic10"),
    ),
    Source(
        name="pacs",
        summary="photographs, paintings, cartoons and sketches of 7 classes; by domain",
        files=tuple(f"{domain}/<class>/*" for domain in image_folder.PACS_FOLDERS),
        origin="Li, Yang, Song and Hospedales, Deeper, Broader and Artier Domain Generalization (ICCV 2017)",
        recognise=image_folder.recognise_pacs,
        load=partial(image_folder.load, name="pacs"),
        folders=partial(search_folders, "pacs"),
    ),
    Source(
        name="femnist",
        summary="28×28 handwritten digits and letters, 62 classes; by writer",
        files=("femnist*.npz", _LEAF),
        origin="LEAF, https://leaf.cmu.edu",
        recognise=femnist.recognise,
        load=femnist.load,
        folders=partial(search_folders, "femnist", telling_files=False),
    ),
    Source(
        name="shakespeare",
        summary="the next character of Shakespeare's plays, 80 tokens; by speaking role",
        files=("shakespeare*.jsonl[.gz]", _LEAF),
        origin="LEAF, https://leaf.cmu.edu, or the plays as one JSON object a role",
        recognise=shakespeare.recognise,
        load=shakespeare.load,
        folders=partial(search_folders, "shakespeare", telling_files=False),
    ),
    Source(
        name="stackoverflow",
        summary="the next word of questions and answers, 10,004 tokens; by user (needs h5py)",
        files=(stackoverflow.TRAIN, stackoverflow.TEST),
        origin="TensorFlow Federated, tff.simulation.datasets.stackoverflow",
        recognise=stackoverflow.recognise,
        load=stackoverflow.load,
        folders=partial(search_folders, "stackoverflow"),
    ),
    Source(
        name="nsl-kdd",
        summary="network connections, 23 kinds of traffic, 148,517 rows",
        files=(f"{nsl_kdd.TRAIN}[.gz]", f"{nsl_kdd.TEST}[.gz]"),
        origin="University of New Brunswick, https://www.unb.ca/cic/datasets/nsl.html",
        recognise=nsl_kdd.recognise,
        load=nsl_kdd.load,
        folders=partial(search_folders, "nsl-kdd"),
    ),
    Source(
        name="nsl-kdd-binary",
        summary="the rows of nsl-kdd, normal or attack",
        files=(f"{nsl_kdd.TRAIN}[.gz]", f"{nsl_kdd.TEST}[.gz]"),
        origin="University of New Brunswick, https://www.unb.ca/cic/datasets/nsl.html",
        recognise=nsl_kdd.recognise,
        load=nsl_kdd.load_binary,
        folders=partial(search_folders, "nsl-kdd"),
    ),
    Source(
        name="image-folder",
        summary="any folder of images by class, with train and test or with domains; needs a path",
        files=("train/<class>/* and test/<class>/*", "or <domain>/<class>/*"),
        origin="your own files",
        recognise=image_folder.recognise,
        load=image_folder.load,
        folders=list,
    ),
    Source(
        name="npz",
        summary="any NumPy archive of images or tables; needs a path",
        files=(f"a .npz file with {', '.join(npz.KEYS)} and optionally client_train",),
        origin="your own files",
        recognise=npz.recognise,
        load=npz.load,
        folders=list,
    ),
)

DATASETS: dict[str, Source] = {source.name: source for source in _SOURCES}
