"""Reads and writes YAML as plain data: no Python objects, no duplicate keys, and limits on size and nesting."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import yaml

from fedrelay.errors import SpecError
from fedrelay.experiment.error_messages import nearest_path

try:
    from yaml import CSafeDumper as Dumper  # ten times faster, if PyYAML was built with them
    from yaml import CSafeLoader as Loader
except ImportError:
    from yaml import SafeDumper as Dumper  # type: ignore[assignment]
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

MAX_CHARACTERS = 200_000
"""The largest file that is read."""

MAX_VALUES = 100_000
"""The largest number of values, with aliases expanded."""

MAX_LEVELS = 50
"""The deepest nesting of lists and mappings."""


def parse_yaml(text: str) -> Any:
    """The value of a YAML text.

    Raises:
        yaml.YAMLError, ValueError, RecursionError: The text is not valid, or too large.
    """
    _check_levels(text)
    loader = _PlainLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _size(node, {}) > MAX_VALUES:
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_VALUES:,} values", problem_mark=node.start_mark)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def to_yaml(value: Any, *, width: int = 80) -> str:
    """A value of plain data as YAML text; keys stay in their order, lines are broken at `width` characters."""
    return str(yaml.dump(value, Dumper=Dumper, sort_keys=False, width=width))


def parse_assignment(text: str) -> tuple[str, Any]:
    """`train.lr=0.1` → ("train.lr", 0.1); the value is parsed as YAML."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise SpecError(f"--set {text}: must be KEY=VALUE, for example --set train.lr=0.1")
    try:
        return path.strip(), parse_yaml(value) if value.strip() else ""
    except (yaml.YAMLError, ValueError, RecursionError):
        raise SpecError(f"--set {text}: the value is not valid YAML") from None


def read_file(path: Path, what: str) -> dict[str, Any]:
    """The mapping in a YAML file. `what` describes it in error messages."""
    try:
        if path.exists() and not path.is_file():
            raise SpecError(f"{path}: cannot be read (not a regular file)")  # a pipe may never end
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
        if len(text) > MAX_CHARACTERS:
            raise SpecError(f"{path}: is too long for {what} (more than {MAX_CHARACTERS:,} characters)")
        tree = parse_yaml(text)
    except OSError as error:
        meant = nearest_path(path) if isinstance(error, FileNotFoundError) else ""
        raise SpecError(f"{path}: cannot be read ({error.strerror or error}){meant}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # impossible dates and numbers raise ValueError
        mark = getattr(error, "problem_mark", None)
        last = text.count("\n") if mark else 0  # the mark of an end may be beyond the text
        where = f", line {min(mark.line, last) + 1}" if mark else ""
        raise SpecError(
            f"{path}{where}: not valid YAML ({getattr(error, 'problem', None) or 'unreadable text'})"
        ) from None
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise SpecError(f"{path}: {what} must be a mapping of names to values, for example 'method: fedseq'")
    return tree


def load_file(path: Path) -> dict[str, Any]:
    """The settings in a YAML file, not yet validated."""
    tree = read_file(path, "an experiment")
    if ("method" in tree) == ("methods" in tree):
        raise SpecError(f"{path}: needs either 'method' (one run) or 'methods' (a comparison)")
    return tree


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """The number of values of a node with aliases expanded; a node that contains itself exceeds the limit."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in known:
        known[id(node)] = MAX_VALUES + 1  # until it has been counted
        pairs = isinstance(node, yaml.MappingNode)
        below = [each for pair in node.value for each in pair] if pairs else node.value
        known[id(node)] = 1 + sum(_size(each, known) for each in below)
    return known[id(node)]


def _check_levels(text: str) -> None:
    """Check the nesting first, because composing nodes is recursive."""
    level = 0
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            level -= 1
        if level > MAX_LEVELS:
            # The C loader's marks are as good as the pure ones, which the stubs of the error insist on.
            mark = cast(yaml.Mark | None, event.start_mark)
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_LEVELS} levels", problem_mark=mark)


class _PlainLoader(Loader):
    """Loads plain data only, and refuses duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key.value!r}", key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)
