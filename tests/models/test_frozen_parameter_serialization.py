"""Frozen parameters as bytes: any type goes to another module and back, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fedrelay.models.flat_layout import frozen_parameters
from fedrelay.models.frozen_parameter_serialization import frozen_bytes, frozen_sha256, load_frozen_bytes


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(3, 2).bfloat16(), nn.Linear(1, 1).double(), nn.Linear(2, 2))
    module[:2].requires_grad_(False)
    module.register_parameter("scale", nn.Parameter(torch.tensor(seed, dtype=torch.int8), requires_grad=False))
    return module


def test_any_type_is_sent_as_it_is():
    source, target = network(1), network(2)
    trained = target[2].weight.clone()
    sent = frozen_bytes(source)
    assert (sent.dtype, len(sent)) == (np.uint8, 1 + 2 * 8 + 8 * 2)
    load_frozen_bytes(target, sent)
    for (name, ours), (same, theirs) in zip(frozen_parameters(source), frozen_parameters(target), strict=True):
        assert name == same
        assert torch.equal(ours, theirs)
        assert ours.dtype == theirs.dtype
    assert torch.equal(target[2].weight, trained)
    sent[:] = 0
    assert target.scale == 1  # the bytes were copied


def test_the_hash_sees_every_bit():
    assert frozen_sha256(frozen_bytes(network(1))) == frozen_sha256(frozen_bytes(network(1)))
    assert frozen_sha256(frozen_bytes(network(1))) != frozen_sha256(frozen_bytes(network(2)))
    assert len(frozen_bytes(nn.Linear(1, 1))) == 0


def test_another_number_of_bytes_is_refused():
    with pytest.raises(ValueError, match="another number of bytes"):
        load_frozen_bytes(network(1), np.zeros(3, np.uint8))
