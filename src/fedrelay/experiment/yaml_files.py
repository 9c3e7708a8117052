"""Read YAML files as plain data, safely: no objects, no duplicate keys, bounded size and depth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from fedrelay.errors import SpecError

try:
    from yaml import CSafeLoader as Loader  # ten times as fast, if PyYAML was built with it
except ImportError:
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

MOST_TEXT = 200_000
"""The largest file, in characters."""

MOST_VALUES = 100_000
"""The most values in a file, with aliases expanded."""

MOST_LEVELS = 50
"""The deepest nesting of lists and mappings."""


def parsed(text: str) -> Any:
    """Parse a text.

    Raises:
        yaml.YAMLError, ValueError, RecursionError: The text is not valid.
    """
    _check_levels(text)
    loader = _PlainLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _size(node, {}) > MOST_VALUES:
            raise yaml.MarkedYAMLError(problem=f"more than {MOST_VALUES:,} values", problem_mark=node.start_mark)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def parse_assignment(text: str) -> tuple[str, Any]:
    """`train.lr=0.1` → ("train.lr", 0.1); values are read as YAML."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise SpecError(f"--set {text}: expected KEY=VALUE, for example --set train.lr=0.1")
    try:
        return path.strip(), parsed(value) if value.strip() else ""
    except (yaml.YAMLError, ValueError, RecursionError):
        raise SpecError(f"--set {text}: the value is not valid YAML") from None


def read_file(path: Path, what: str) -> dict[str, Any]:
    """Read a YAML file that contains a mapping; `what` describes it in messages."""
    try:
        if path.exists() and not path.is_file():
            raise SpecError(f"{path}: cannot be read (not a regular file)")  # a pipe may never end
        with path.open(encoding="utf-8") as file:
            text = file.read(MOST_TEXT + 1)
        if len(text) > MOST_TEXT:
            raise SpecError(f"{path}: is too long for {what} (more than {MOST_TEXT:,} characters)")
        tree = parsed(text)
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: an invalid date or number
        mark = getattr(error, "problem_mark", None)
        last = text.count("\n") if mark else 0  # the mark may be beyond the end
        where = f", line {min(mark.line, last) + 1}" if mark else ""
        raise SpecError(
            f"{path}{where}: not valid YAML ({getattr(error, 'problem', None) or 'unreadable text'})"
        ) from None
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise SpecError(f"{path}: {what} is a mapping of names to values, for example 'method: fedseq'")
    return tree


def load_file(path: Path) -> dict[str, Any]:
    """The settings of a YAML file, not yet validated."""
    tree = read_file(path, "an experiment")
    if ("method" in tree) == ("methods" in tree):
        raise SpecError(f"{path}: needs either 'method' (one run) or 'methods' (a comparison)")
    return tree


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """The number of values of a node with aliases expanded; too many if it contains itself."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in known:
        known[id(node)] = MOST_VALUES + 1  # while it is being counted
        pairs = isinstance(node, yaml.MappingNode)
        below = [each for pair in node.value for each in pair] if pairs else node.value
        known[id(node)] = 1 + sum(_size(each, known) for each in below)
    return known[id(node)]


def _check_levels(text: str) -> None:
    """Check the depth first, because composing nodes is recursive."""
    level = 0
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            level -= 1
        if level > MOST_LEVELS:
            raise yaml.MarkedYAMLError(problem=f"more than {MOST_LEVELS} levels", problem_mark=event.start_mark)


class _PlainLoader(Loader):
    """Plain data only; a duplicate key is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key.value!r}", key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)
