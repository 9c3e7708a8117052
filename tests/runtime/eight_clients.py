"""Eight small clients and a network for them: for tests that run many methods with many rounds."""

from __future__ import annotations

import numpy as np
import torch

import fedrelay as fr

GROUPS = {"grouping.max_clients": 2, "grouping.min_samples": 1000}
"""Four groups of two clients."""


def federation():
    rng = np.random.default_rng(1)
    owners = [client for client in range(8) for _ in range(4 + client % 3)]
    y = np.array([owner % 3 for owner in owners])
    x = (rng.normal(size=(3, 4))[y] + rng.normal(size=(len(y), 4))).astype(np.float32)
    return fr.federate(x, y, x, y, client_ids=owners, partition="natural")


def network():
    torch.manual_seed(2)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))


class Dies(fr.Callback):
    """Ends a run after a round, as if its process had died."""

    def __init__(self, after):
        self.after = after

    def on_round_end(self, context):
        if context.round == self.after:
            raise KeyboardInterrupt
