"""Vowel: eleven vowels of British English, spoken by 15 people, as ten LPC features. One comma-separated file.

Speakers are the natural clients. The file's own split has other speakers in its test part, so that no speaker could be
evaluated on samples of their own. Here a fifth of each speaker and vowel, always the same, is used for testing.
Features are standardised over all train samples.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedrelay.data.csv_table import read_columns
from fedrelay.data.dataset import Dataset
from fedrelay.data.loaders.file_checks import damaged
from fedrelay.data.loaders.stratified_split import stratified_split
from fedrelay.data.table_encoding import numeric_column
from fedrelay.errors import DataError

FILE = "vowel.csv"
FEATURES = tuple(f"f{number}" for number in range(10))
SPEAKERS, VOWELS = 15, 11


def recognise(location: Path) -> Path | None:
    """A folder with the file, or the file itself."""
    found = location if location.name == FILE else location / FILE
    return found if found.is_file() else None


def load(path: Path) -> Dataset:
    """All samples, with speakers as natural clients."""
    columns = read_columns(path)
    if absent := [name for name in ("speaker", "vowel", *FEATURES) if name not in columns]:
        raise damaged(path, f"has no column {absent[0]!r}")
    try:
        speaker, vowel, *features = (numeric_column(columns, name) for name in ("speaker", "vowel", *FEATURES))
    except DataError as error:
        raise damaged(path, str(error)) from None
    x = np.stack(features, axis=1)
    for name, numbers, count in (("speaker", speaker, SPEAKERS), ("vowel", vowel, VOWELS)):
        if not np.isin(numbers, np.arange(count)).all() or len(np.unique(numbers)) < count:
            raise damaged(path, f"must have each {name} from 0 to {count - 1}, and no other")
    if not np.isfinite(x).all():
        raise damaged(path, "has missing or infinite features")
    owner, y = speaker.astype(np.int64), vowel.astype(np.int64)
    train, test = stratified_split(VOWELS * owner + y, "vowel-split")
    x = ((x - x[train].mean(0)) / x[train].std(0)).astype(np.float32)
    names = tuple(f"speaker {number}" for number in range(SPEAKERS))
    return Dataset(
        name="vowel",
        kind="tabular",
        x_train=x[train],
        y_train=y[train],
        x_test=x[test],
        y_test=y[test],
        classes=VOWELS,
        client_train=owner[train],
        client_names=names,
        test_sample_names={"client": np.array(names)[owner[test]]},
    )
