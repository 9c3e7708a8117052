"""The names of clients, where the data have any: hospitals, speakers, the names in a column of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedrelay.data.federation import ArrayFederation, Federation
from fedrelay.data.federation_wrapper import innermost
from fedrelay.data.torch_dataset_federation import TorchDatasetFederation


def known_client_names(federation: Federation) -> tuple[str, ...] | None:
    """The names of all clients, in the order of their numbers; None where clients have none.

    A client has a name if all its samples are from one natural client that no other client shares.

    Example:
        >>> import fedrelay as fr
        >>> known_client_names(fr.load_data("heart-disease"))
        ('cleveland', 'hungarian', 'switzerland', 'va')
        >>> known_client_names(fr.load_data("heart-disease", clients=4, partition="iid")) is None
        True
    """
    federation = innermost(federation)
    if isinstance(federation, TorchDatasetFederation):
        return federation.client_names
    if not isinstance(federation, ArrayFederation):
        return None
    names, owners = federation.dataset.client_names, federation.dataset.client_train
    held, counts = federation.client_indices, federation.client_indices.sample_counts()
    if not names or owners is None or not counts.all():
        return None
    of_samples = owners[held.indices]
    first = np.minimum.reduceat(of_samples, held.offsets[:-1])
    last = np.maximum.reduceat(of_samples, held.offsets[:-1])
    if (first != last).any() or len(np.unique(first)) < len(first):
        return None
    return tuple(names[owner] for owner in first)


def client_names(federation: Federation, nodes: Sequence[str] = ()) -> tuple[str, ...]:
    """The name of every client: that of its node, its own, or else its number.

    Args:
        federation: The clients, which are not pooled.
        nodes: The names of the nodes, where clients are nodes.
    """
    return tuple(nodes) or known_client_names(federation) or tuple(str(each) for each in range(federation.client_count))
