"""Stack Overflow by user, in the files of TensorFlow Federated: predict the next word in sentences of up to 20 words.

HDF5 files with `examples/<user>/tokens`; each row is one sentence of words separated by spaces. The vocabulary is
padding, start, end, unknown, and the 10,000 most frequent words of the train sentences. The target of each position is
the next word, or the end. Padding is ignored.

The full data set has 136 million train sentences, which do not fit in memory. Only the first 40,000 users in the order
of their names are read, with up to 128 sentences each, and up to 10,000 test sentences: about one gigabyte.
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
from fedrelay.data.loaders.file_checks import damaged, reading
from fedrelay.errors import DataError

TRAIN, TEST = "stackoverflow_train.h5", "stackoverflow_test.h5"
LENGTH = 20
VOCABULARY = 10_000
USERS = 40_000
SENTENCES = 128
TEST_SENTENCES = 10_000
PADDING, START, END, UNKNOWN = range(SPECIAL := 4)

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
    """Tokens `[n, 20]` and the next tokens `[n, 20]`; users are the natural clients."""
    # Two passes over the train file: the words of all sentences at once would take gigabytes.
    counts: Counter[bytes] = Counter()
    for rows in islice(_read_users(folder / TRAIN, sentences), users):
        counts.update(chain.from_iterable(rows))
    token_of = _vocabulary(counts, vocabulary)
    train = [_tokens(rows, token_of) for rows in islice(_read_users(folder / TRAIN, sentences), users)]
    test_rows = islice(chain.from_iterable(_read_users(folder / TEST, sentences)), test_sentences)
    test = _tokens(list(test_rows), token_of)
    if not train or not len(test):
        raise damaged(folder / (TEST if train else TRAIN), "has no sentences")
    _log.info("stackoverflow: %d users with up to %d sentences each", len(train), sentences)
    holders = np.repeat(np.arange(len(train)), [len(tokens) for tokens in train])
    samples = *_samples(np.concatenate(train)), *_samples(test)
    return Dataset("stackoverflow", "tokens", *samples, classes=len(token_of) + SPECIAL, client_train=holders)


def _read_users(path: Path, limit: int) -> Iterator[list[list[bytes]]]:
    """The words of the first sentences of each user; users without sentences are skipped."""
    h5py = _import_h5py()
    try:
        with reading(path), h5py.File(path, "r") as file:
            examples = file.get("examples")
            if not isinstance(examples, h5py.Group):
                raise damaged(path, "has no group `examples`")
            for user in examples:
                tokens = examples.get(f"{user}/tokens")
                if not isinstance(tokens, h5py.Dataset) or tokens.ndim != 1:
                    raise damaged(path, f"examples/{user} has no list `tokens`")
                if h5py.check_string_dtype(tokens.dtype) is None:
                    raise damaged(path, f"examples/{user}/tokens does not contain text")
                rows = [sentence.split()[:LENGTH] for sentence in tokens[:limit]]
                if rows := [row for row in rows if row]:
                    yield rows
    except (RuntimeError, KeyError, ValueError) as error:
        raise damaged(path, f"is a damaged HDF5 file ({error})") from error


def _import_h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        message = "Stack Overflow needs the package h5py; install it with pip install 'fedrelay[hdf5]'"
        raise DataError(message) from error
    return h5py


def _vocabulary(counts: Counter[bytes], size: int) -> dict[bytes, int]:
    """The most frequent words, numbered after the special tokens; ties are sorted by spelling."""
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: token for token, word in enumerate(ranked[:size], start=SPECIAL)}


def _tokens(rows: list[list[bytes]], token_of: dict[bytes, int]) -> NDArray[np.uint16]:
    """Each sentence as start, words and, if there is room, end."""
    tokens = np.full((len(rows), LENGTH + 1), PADDING, np.uint16)
    for slot, words in zip(tokens, rows, strict=True):
        numbered = [START, *(token_of.get(word, UNKNOWN) for word in words), END][: LENGTH + 1]
        slot[: len(numbered)] = numbered
    return tokens


def _samples(tokens: NDArray[np.uint16]) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Every token but the last, and its next token."""
    targets = tokens[:, 1:].astype(np.int64)
    targets[targets == PADDING] = IGNORED_LABEL
    return np.ascontiguousarray(tokens[:, :-1]), targets
