"""Tables of four hospitals: a file for each node, and one with all rows, to simulate the federation first.

python examples/federation/make_tables.py FOLDER

The patients are those of the embedded heart disease data (Janosi, Steinbrunn, Pfisterer, Detrano; CC BY 4.0).
"""

import argparse
import csv
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
NEVER_ZERO = ("trestbps", "chol")
"""A blood pressure or cholesterol of 0 was not measured: the cell becomes empty."""


def patients(hospital: str) -> list[dict[str, str]]:
    """The rows of a hospital, with a number for each patient, and the diagnosis 0 … 4 as ill or not."""
    source = files("fedrelay.data") / "files" / "heart-disease" / f"{hospital}.csv"
    rows = []
    for number, row in enumerate(csv.DictReader(source.read_text().splitlines()), 1):
        measured = {name: "" if name in NEVER_ZERO and not float(row[name] or 0) else row[name] for name in row}
        ill = "yes" if int(measured.pop("num")) else "no"
        rows.append({"patient": f"{hospital}-{number}", **measured, "ill": ill})
    return rows


def write_table(path: Path, rows: Sequence[dict[str, str]]) -> None:
    """Write a table with a line of column names."""
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def main(folder: Path) -> None:
    """Write NAME.csv for every node, and all.csv, whose column `hospital` says whose row it is."""
    folder.mkdir(parents=True, exist_ok=True)
    everybody = {hospital: patients(hospital) for hospital in HOSPITALS}
    for hospital, rows in everybody.items():
        write_table(folder / f"{hospital}.csv", rows)
    write_table(folder / "all.csv", [{"hospital": name, **row} for name, rows in everybody.items() for row in rows])


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
