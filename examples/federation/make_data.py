"""Samples for four nodes, each with digits of its own, and test samples for the server.

python examples/federation/make_data.py FOLDER
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

OWNERS = {"north": (0, 1, 2), "east": (3, 4), "south": (5, 6, 7), "west": (8, 9)}


def main(folder: Path) -> None:
    """Write NAME.npz for every node and test.npz for the server."""
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    apart = np.arange(len(labels)) % 5 == 0
    np.savez(folder / "test.npz", x=images[apart], y=labels[apart])
    for name, digits in OWNERS.items():
        own = ~apart & np.isin(labels, digits)
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
