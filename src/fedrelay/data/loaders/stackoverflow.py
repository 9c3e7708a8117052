"""Stack Overflow by user, as TensorFlow Federated stores it: the next word of a sentence of up to 20 words.

HDF5 files with `examples/<user>/tokens`, one sentence of blank-separated words a row. The vocabulary is
padding, start, end, unknown, and the 10,000 most frequent words of the train sentences read.
Every position has a target: the following word, or the end; padding counts for nothing.

The full set has 136 million train sentences, far more than memory holds. Read are the first 40,000 users in
the order of their names, with up to 128 sentences each, and up to 10,000 test sentences: about one gigabyte.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.dataset import IGNORED_LABEL, Dataset
from fedrelay.data.loaders.files import damaged, reading
from fedrelay.errors import DataError

TRAIN, TEST = "stackoverflow_train.h5", "stackoverflow_test.h5"
LENGTH = 20
VOCABULARY = 10_000
USERS = 40_000
SENTENCES = 128
TEST_SENTENCES = 10_000
PADDING, START, END, UNKNOWN = range(4)

_log = logging.getLogger(__name__)


def recognise(location: Path) -> Path | None:
    """A folder with both files."""
    return location if all((location / name).is_file() for name in (TRAIN, TEST)) else None


def load(
    folder: Path,
    vocabulary: int = VOCABULARY,
    users: int = USERS,
    sentences: int = SENTENCES,
    test_sentences: int = TEST_SENTENCES,
) -> Dataset:
    """Tokens `[n, 20]` and their successors `[n, 20]`; the users are the natural clients."""
    train = dict(islice(_read_users(folder / TRAIN, sentences), users))
    _log.info("stackoverflow: %d users, up to %d sentences each", len(train), sentences)
    of_all_users = chain.from_iterable(rows for _, rows in _read_users(folder / TEST, sentences))
    test = list(islice(of_all_users, test_sentences))
    counts = Counter(word for rows in train.values() for row in rows for word in row)
    if not counts or not test:
        raise damaged(folder / (TEST if counts else TRAIN), "holds no sentences")
    token_of = _vocabulary(counts, vocabulary)
    x_train, y_train = _samples([row for rows in train.values() for row in rows], token_of)
    x_test, y_test = _samples(test, token_of)
    return Dataset(
        name="stackoverflow",
        kind="tokens",
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        classes=len(token_of) + 4,
        client_train=np.repeat(np.arange(len(train)), [len(rows) for rows in train.values()]),
    )


def _read_users(path: Path, sentences: int) -> Iterator[tuple[str, list[list[bytes]]]]:
    """Each user that has sentences, with the words of the first ones."""
    h5py = _import_h5py()
    try:
        with reading(path), h5py.File(path, "r") as file:
            examples = file.get("examples")
            if not isinstance(examples, h5py.Group):
                raise damaged(path, "has no group `examples`")
            for user in examples:
                tokens = examples.get(f"{user}/tokens")
                if not isinstance(tokens, h5py.Dataset) or tokens.ndim != 1 or not _is_text(h5py, tokens):
                    raise damaged(path, f"examples/{user} has no list of sentences `tokens`")
                rows = [sentence.split()[:LENGTH] for sentence in tokens[:sentences]]
                if rows := [row for row in rows if row]:
                    yield user, rows
    except (RuntimeError, KeyError, ValueError) as error:
        raise damaged(path, f"is a damaged HDF5 file ({error})") from error


def _import_h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        message = "reading Stack Overflow needs the package h5py: pip install 'fedrelay[hdf5]'"
        raise DataError(message) from error
    return h5py


def _vocabulary(counts: Counter[bytes], size: int) -> dict[bytes, int]:
    """The most frequent words, numbered after the four special tokens; ties go by spelling."""
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: token for token, word in enumerate(ranked[:size], start=UNKNOWN + 1)}


def _samples(
    rows: list[list[bytes]], token_of: dict[bytes, int]
) -> tuple[NDArray[np.uint16 | np.int32], NDArray[np.int64]]:
    """Start and words as input; words and end, where there is room for it, as targets."""
    dtype = np.uint16 if len(token_of) + 4 <= 2**16 else np.int32
    tokens = np.full((len(rows), LENGTH + 1), PADDING, dtype)
    for slot, words in zip(tokens, rows, strict=True):
        numbered = [START, *(token_of.get(word, UNKNOWN) for word in words), END][: LENGTH + 1]
        slot[: len(numbered)] = numbered
    targets = tokens[:, 1:].astype(np.int64)
    targets[targets == PADDING] = IGNORED_LABEL
    return np.ascontiguousarray(tokens[:, :-1]), targets
