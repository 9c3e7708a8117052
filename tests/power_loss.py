"""A disk that forgets: records what a process writes below a folder, and shows what a loss of power may leave of it.

Only what was flushed is certain. Without `fsync` of a file, each write to it may be kept, lost, cut off, or be there as
zeros; without `fsync` of a folder, each of its new, changed or removed names may be as before, whatever happened to the
others.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Fate = str
"""What becomes of an operation that was not flushed: kept, lost, cut or zeros; names know the first two alone."""

Tree = Mapping[str, bytes | None]
"""Path below the folder → content; None for a folder."""


@dataclass(frozen=True)
class Write:
    node: int
    offset: int
    content: bytes


@dataclass(frozen=True)
class Name:
    """A folder gets a name, or loses it (`target` is None); `other` is the old name of what was renamed."""

    node: int
    name: str
    target: int | None
    other: str = ""


@dataclass(frozen=True)
class Flush:
    node: int


@dataclass
class Disk:
    """Everything that was done below a folder, in order. Files and folders have numbers; the folder itself is 0."""

    root: Path
    operations: list[Write | Name | Flush] = field(default_factory=list)
    folders: set[int] = field(default_factory=lambda: {0})
    paths: dict[str, int] = field(default_factory=dict)
    handles: dict[int, int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    notes: list[tuple[int, Any]] = field(default_factory=list)
    """Number of operations → what the process has promised by then."""

    def promise(self, what: Any) -> None:
        self.notes.append((len(self.operations), what))

    def promised(self, when: int) -> list[Any]:
        return [what for number, what in self.notes if number <= when]

    def inside(self, path: Any) -> bool:
        return isinstance(path, str | Path) and Path(path).is_relative_to(self.root)

    def node(self, path: Any) -> int:
        place = str(Path(path).relative_to(self.root))
        return 0 if place == "." else self.paths[place]

    def set_name(self, path: Any, target: int | None, before: Any = None) -> None:
        path = Path(path)
        old = str(Path(before).relative_to(self.root)) if before is not None else ""
        self.operations.append(Name(self.node(path.parent), path.name, target, Path(old).name if old else ""))
        self.paths.pop(old, None)
        self.paths.pop(place := str(path.relative_to(self.root)), None)
        if target is not None:
            self.paths[place] = target

    def new(self, path: Any, *, folder: bool = False) -> int:
        number = 1 + len(self.sizes)
        self.sizes[number] = 0
        self.folders |= {number} if folder else set()
        self.set_name(path, number)
        return number

    def write(self, handle: int, content: bytes) -> None:
        node = self.handles[handle]
        self.operations.append(Write(node, self.sizes[node], content))
        self.sizes[node] += len(content)

    def names(self) -> Iterator[tuple[str, int]]:
        """The last name of everything that was ever there."""
        yield "", 0
        yield from ((each.name, each.target) for each in self.operations if isinstance(each, Name) and each.target)

    def after(self, when: int, fate: Callable[[Write | Name], Fate], *, ignored: Callable[[int], bool]) -> Tree:
        """What is there if the power fails after `when` operations; the disk does not honour `ignored` flushes."""
        flushed: dict[int, int] = {}
        for number, each in enumerate(self.operations[:when]):
            if isinstance(each, Flush) and not ignored(each.node):
                flushed[each.node] = number
        names: dict[int, dict[str, int]] = {number: {} for number in self.folders}
        contents: dict[int, bytearray] = {number: bytearray() for number in self.sizes if number not in self.folders}
        for number, each in enumerate(self.operations[:when]):
            if isinstance(each, Flush):
                continue
            became = "kept" if number < flushed.get(each.node, -1) else fate(each)
            if became == "lost":
                continue
            if isinstance(each, Write):
                whole = each.content if became == "kept" else each.content[: len(each.content) // 2]
                whole = b"" if became == "zeros" else whole
                content = contents[each.node]
                content.extend(bytes(max(0, each.offset + len(each.content) - len(content))))
                content[each.offset : each.offset + len(whole)] = whole
                continue
            entries = names[each.node]
            entries.pop(each.other, None)
            entries.pop(each.name, None)
            if each.target is not None:
                entries[each.name] = each.target
        return dict(self._below(0, "", names, contents))

    def _below(
        self, folder: int, place: str, names: dict[int, dict[str, int]], contents: dict[int, bytearray]
    ) -> Iterator[tuple[str, bytes | None]]:
        for name, node in sorted(names[folder].items()):
            yield place + name, None if node in self.folders else bytes(contents[node])
            if node in self.folders:
                yield from self._below(node, f"{place}{name}/", names, contents)

    def crashes(
        self, random_states: int, *, ignored: Callable[[int], bool] = lambda node: False
    ) -> Iterator[tuple[int, Tree]]:
        """Different states: all lost that may be lost at every moment, nothing lost after each removal, and by chance.

        The last moment comes first: of equal states it is the one for which most was promised.
        """
        seen: set[frozenset[tuple[str, bytes | None]]] = set()
        rng = random.Random(len(self.operations))
        moments = [(when, lambda each: "lost") for when in range(len(self.operations) + 1)]
        removals = [each for each, done in enumerate(self.operations, 1) if isinstance(done, Name) and not done.target]
        moments += [(when, lambda each: "kept") for when in removals]
        moments += [
            (rng.randrange(len(self.operations) + 1), lambda each: rng.choice(("kept", "lost", "cut", "zeros")))
            for _ in range(random_states)
        ]
        for when, fate in sorted(moments, key=lambda moment: -moment[0]):
            tree = self.after(when, fate, ignored=ignored)
            if (state := frozenset(tree.items())) not in seen:
                seen.add(state)
                yield when, tree


class _Unbuffered:
    """A file whose writes are seen."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __enter__(self) -> _Unbuffered:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.handle)

    def write(self, content: bytes) -> None:
        assert os.write(self.handle, content) == len(content)

    def flush(self) -> None:
        pass

    def fileno(self) -> int:
        return self.handle


@contextmanager
def recorded(root: Path) -> Iterator[Disk]:
    """Record everything that is done below a folder; nothing is really flushed, which saves time."""
    root.mkdir(exist_ok=True)
    disk, true = Disk(root), {name: getattr(os, name) for name in ("open", "close", "write", "fdopen", "mkdir")}
    true |= {name: getattr(os, name) for name in ("replace", "rename", "unlink", "rmdir")}

    def opened(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        new = disk.inside(path) and bool(flags & os.O_CREAT) and not Path(path).exists()
        handle = true["open"](path, flags, mode, **more)
        if disk.inside(path):
            disk.handles[handle] = disk.new(path) if new else disk.node(path)
        return handle

    def closed(handle: int) -> None:
        disk.handles.pop(handle, None)
        true["close"](handle)

    def written(handle: int, content: bytes) -> int:
        if handle in disk.handles:
            disk.write(handle, bytes(content))
        return true["write"](handle, content)

    def as_file(handle: int, *given: Any, **more: Any) -> Any:
        return _Unbuffered(handle) if handle in disk.handles else true["fdopen"](handle, *given, **more)

    def made(path: Any, *given: Any, **more: Any) -> None:
        true["mkdir"](path, *given, **more)
        if disk.inside(path):
            disk.new(path, folder=True)

    def moved(source: Any, target: Any, **more: Any) -> None:
        true["replace"](source, target, **more)
        if disk.inside(source):
            assert Path(source).parent == Path(target).parent, "a name in two folders changes at once"
            disk.set_name(target, disk.node(source), before=source)

    def removed(path: Any, **more: Any) -> None:
        true["unlink"](path, **more)
        if disk.inside(path):
            disk.set_name(path, None)

    def flushed(handle: int) -> None:
        if handle in disk.handles:
            disk.operations.append(Flush(disk.handles[handle]))

    with pytest.MonkeyPatch.context() as patch:
        for name, instead in {
            "open": opened, "close": closed, "write": written, "fdopen": as_file, "mkdir": made, "replace": moved,
            "rename": moved, "unlink": removed, "fsync": flushed,
        }.items():  # fmt: skip
            patch.setattr(os, name, instead)
        yield disk
    everything = disk.after(len(disk.operations), lambda each: "kept", ignored=lambda node: False)
    assert everything == tree_of(root), "something was written that was not recorded"


def tree_of(root: Path) -> Tree:
    """What is below a folder."""
    found = sorted(root.rglob("*"))
    return {str(each.relative_to(root)): each.read_bytes() if each.is_file() else None for each in found}


def write_tree(tree: Tree, root: Path) -> None:
    """Write what is left after a loss of power."""
    root.mkdir(parents=True)
    for place, content in tree.items():
        if content is None:
            (root / place).mkdir()
        else:
            (root / place).write_bytes(content)
