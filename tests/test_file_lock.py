"""Locks between processes, and the package on systems that lack what Linux has."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import fedrelay as fr
from fedrelay import file_lock
from fedrelay.file_lock import is_locked, lock_file

HOLD = """
import sys
from pathlib import Path
from importlib.util import module_from_spec, spec_from_file_location

spec = spec_from_file_location("file_lock", sys.argv[1])
module = module_from_spec(spec)
spec.loader.exec_module(module)
module.lock_file(Path(sys.argv[2]))
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path):
    """A file that another process has locked."""
    path = tmp_path / "held"
    words = [sys.executable, "-c", HOLD, file_lock.__file__, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"locked\n"
        yield path
        process.stdin.close()
        process.wait()


def test_a_lock_of_another_process_is_seen_and_refused(held, tmp_path):
    assert is_locked(held)
    with pytest.raises(BlockingIOError):
        lock_file(held)
    assert not is_locked(tmp_path / "nowhere")


def test_a_lock_ends_with_its_handle(tmp_path):
    handle = lock_file(tmp_path / "own", mode=0o600)
    os.close(handle)
    assert not is_locked(tmp_path / "own")
    os.close(lock_file(tmp_path / "own", wait=True))


def test_links_are_not_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        lock_file(tmp_path / "link")
    assert not (tmp_path / "target").exists()


class Msvcrt(types.ModuleType):
    """Windows' locks as far as we use them: a byte of a file belongs to the first handle that takes it."""

    LK_NBLCK, LK_UNLCK = 2, 0

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.owners: dict[tuple[int, int] | None, int] = {}

    def locking(self, handle: int, kind: int, length: int) -> None:
        file = self._file(handle)
        if kind == self.LK_UNLCK:
            assert self.owners.pop(file) == handle
        elif (owner := self.owners.get(file, handle)) != handle and self._file(owner) == file:
            raise OSError(36, "Resource deadlock avoided")
        else:
            assert (length, os.lseek(handle, 0, os.SEEK_CUR)) == (1, 0)
            self.owners[file] = handle

    @staticmethod
    def _file(handle: int) -> tuple[int, int] | None:
        """The file of a handle; a lock ends when its handle is closed."""
        try:
            state = os.fstat(handle)
        except OSError:
            return None
        return state.st_dev, state.st_ino


def test_windows_locks_are_used_where_there_are_no_others(tmp_path, monkeypatch):
    windows = Msvcrt()
    monkeypatch.setitem(sys.modules, "msvcrt", windows)
    monkeypatch.setattr(file_lock, "fcntl", None)
    monkeypatch.setattr(file_lock, "_PAUSE", 0.0)
    path = tmp_path / "lock"
    assert not is_locked(path)
    handle = lock_file(path)
    assert is_locked(path)
    with pytest.raises(BlockingIOError):
        lock_file(path)
    windows.locking(handle, windows.LK_UNLCK, 1)
    assert not is_locked(path)
    assert windows.owners == {}  # looking leaves nothing behind
    os.close(handle)


@pytest.mark.slow
def test_everything_runs_without_what_windows_lacks(tmp_path):
    """The same weights as on this system; no fork, no fcntl, no signals that only POSIX has."""
    script = Path(__file__).parent / "system" / "without_posix.py"
    root = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])}
    ended = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    small = {"data": "digits", "clients": 10, "alpha": 0.1, "batch_size": 16, "rounds": 2}
    here = fr.run("fedseq", workers=2, progress=False, **small)
    assert ended.stdout.splitlines()[-1] == here.weights.double().sum().item().hex()
