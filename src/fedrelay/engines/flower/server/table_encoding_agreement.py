"""What nodes with tables agree on: the server adds up the sums that they sent and derives one encoding for all."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedrelay.data.table import listed, sorted_names
from fedrelay.data.table_encoding import TableStatistics, is_number
from fedrelay.data.table_federation import SharedEncoding, default_task
from fedrelay.engines.flower.node_facts import NodeFacts, TableFacts
from fedrelay.errors import DataError
from fedrelay.experiment.spec import TableSettings

log = logging.getLogger(__name__)


def agree_on_encoding(
    facts: Mapping[str, NodeFacts], settings: TableSettings
) -> tuple[dict[str, NodeFacts], SharedEncoding] | None:
    """One encoding for the tables of all nodes, and the facts of nodes whose rows are encoded that way.

    Args:
        facts: Node → what it said about itself.
        settings: How numbers are scaled, and whether missing values are marked.

    Returns:
        None if no node has a table.

    Raises:
        DataError: The tables do not fit each other.
    """
    tables = {name: each.table for name, each in facts.items() if each.table is not None}
    if not tables:
        return None
    if without := sorted(facts.keys() - tables.keys()):
        raise DataError(
            f"node {next(iter(tables))!r} serves a table, node {without[0]!r} does not; serve one at all nodes"
        )
    statistics = _with_same_columns(tables)
    labels = sorted_names(label for table in tables.values() for label in table.labels)
    task = _agreed_task(tables, labels)
    own_labels = [table.labels for table in tables.values()]
    shared = SharedEncoding.of(list(statistics.values()), own_labels, labels, settings)
    features = len(shared.encoding.feature_names)
    agreed = {}
    for name, each in facts.items():
        counts = None if each.histogram is None else dict(zip(tables[name].labels, each.histogram, strict=True))
        histogram = None if counts is None else tuple(counts.get(label, 0) for label in labels)
        update = {"shape": (features,), "classes": len(labels), "task": task, "histogram": histogram}
        agreed[name] = each.model_copy(update=update)
    return agreed, shared


def _agreed_task(tables: Mapping[str, TableFacts], labels: Sequence[str]) -> str:
    """The task that owners name, or that follows from the labels of all nodes."""
    named = {node: table.task for node, table in tables.items() if table.task is not None}
    first = next(iter(named), "")
    for node, own in named.items():
        if own != named[first]:
            raise DataError(
                f"node {first!r} was started with --task {named[first]}, node {node!r} with --task {own}; start all "
                "nodes with the same one"
            )
    task = named.get(first) or default_task(labels)
    if len(labels) == 1:
        raise DataError(f"all rows of all nodes have the same label in the target column: {labels[0]!r}")
    if task == "binary" and len(labels) != 2:
        raise DataError(f"node {first!r} was started with --task binary, but the nodes have labels {listed(labels)}")
    _check_spelling(tables)
    return task


def _check_spelling(tables: Mapping[str, TableFacts]) -> None:
    """Refuse labels that are numbers at one node and words at another; warn of a node whose labels no other has."""
    numbers = {node: [is_number(label) for label in table.labels] for node, table in tables.items() if table.labels}
    coded = next((node for node, are in numbers.items() if all(are)), None)
    worded = next((node for node, are in numbers.items() if not any(are)), None)
    if coded is not None and worded is not None:
        raise DataError(
            f"labels are numbers at node {coded!r} ({listed(tables[coded].labels, 5)}) and words at node {worded!r} "
            f"({listed(tables[worded].labels, 5)}); write the same labels at all nodes"
        )
    for node, table in tables.items():
        others = {label for other, each in tables.items() if other != node for label in each.labels}
        if len(table.labels) > 1 and others and others.isdisjoint(table.labels):
            log.warning(
                "no other node has a label of node %r (%s): are labels written alike?", node, listed(table.labels, 5)
            )


def _text_of(column: str, tables: Mapping[str, TableFacts]) -> tuple[str, str]:
    """The first node at which a column is text, and a text that is no number, if it has one."""
    node = next(node for node, table in tables.items() if column in table.statistics.categories)
    texts = sorted(tables[node].statistics.categories[column])
    return node, next((text for text in texts if not is_number(text)), texts[0] if texts else "")[:40]


def _with_same_columns(tables: Mapping[str, TableFacts]) -> dict[str, TableStatistics]:
    """The sums of every node, in which each column is numeric at all nodes, or categorical at all."""
    first, *_ = tables
    categorical = list(dict.fromkeys(name for table in tables.values() for name in table.statistics.categories))
    expected = {*tables[first].statistics.numbers, *tables[first].statistics.categories}
    found = {}
    for node, table in tables.items():
        both, own = f"node {first!r} and node {node!r}", table.statistics
        if table.target != tables[first].target:
            raise DataError(f"{both} predict other columns: {tables[first].target!r} and {table.target!r}")
        if bool(table.labels) != bool(tables[first].labels):
            raise DataError(
                f"{both}: the target {table.target!r} has labels at one, numbers at the other; start both with --task"
            )
        columns = {*own.numbers, *own.categories}
        for having, lacking, extra in ((first, node, expected - columns), (node, first, columns - expected)):
            if extra:
                raise DataError(
                    f"node {having!r} has columns that node {lacking!r} lacks: {listed(sorted(extra))}; name them in "
                    "--drop, at all nodes"
                )
        for name in categorical:
            if name in own.numbers and own.numbers[name].known:
                other, text = _text_of(name, tables)
                raise DataError(
                    f"the column {name!r} has numbers at node {node!r} and text at node {other!r}, such as {text!r}; "
                    f"correct it there, or start all nodes with --categorical {name} if these are categories"
                )
        counts = {name: own.categories.get(name, Counter()) for name in categorical}  # none: no value is known there
        numbers = {name: sums for name, sums in own.numbers.items() if name not in categorical}
        found[node] = replace(own, numbers=numbers, categories=counts)
    return found
