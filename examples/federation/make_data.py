"""Samples for four nodes, each with digits of its own, and test samples for the server.

python examples/federation/make_data.py FOLDER
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

import fedrelay as fr

OWNERS = {"north": (0, 1, 2), "east": (3, 4), "south": (5, 6, 7), "west": (8, 9)}


def main(folder: Path) -> None:
    """Write NAME.npz for every node and test.npz for the server."""
    everything = fr.load_data("digits", clients=1, partition="iid")
    (images, labels), (test_images, test_labels) = everything.train_samples(0).load(), everything.test.load()
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "test.npz", x=test_images, y=test_labels)
    for name, digits in OWNERS.items():
        own = np.isin(labels, digits)
        np.savez(folder / f"{name}.npz", x=images[own], y=labels[own])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), metavar="FOLDER", help="folder for the files")
    parser.add_argument("--smoke", action="store_true", help="run a short check only; keeps nothing")
    options = parser.parse_args()
    if options.smoke:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
            print(*sorted(path.name for path in Path(temporary).iterdir()))
    else:
        main(options.folder)
