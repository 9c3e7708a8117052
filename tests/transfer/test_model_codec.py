"""Whole models: the trained part is encoded, buffers and counters are not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import TransferSettings, validate
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.transfer.base import DamagedEncoding
from fedrelay.transfer.model_codec import CODECS, ModelCodec


def codec_of(name: str, module: nn.Module) -> ModelCodec:
    found = ModelCodec.of(TransferSettings(codec=name), FlatLayout.of(module))  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.mark.parametrize("name", CODECS)
def test_buffers_and_counters_are_sent_as_they_are(name: str) -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    codec = codec_of(name, module)
    trained, rest = 4 * 3 + 3 + 6, 3 + 3 + 1
    assert codec.bytes == codec.codec.size(trained) + 4 * rest
    model = torch.randn(trained + rest, generator=torch.Generator().manual_seed(1))
    reference = torch.zeros_like(model)
    random = np.random.default_rng(1)
    encoded = codec.encode(model, reference, random)
    assert encoded.nbytes == codec.bytes
    decoded = codec.decode(encoded, reference)
    assert torch.equal(decoded[trained:], model[trained:])
    assert not torch.equal(decoded[:trained], model[:trained])
    with pytest.raises(DamagedEncoding, match=f"bytes instead of {codec.bytes}"):
        codec.decode(encoded[1:], reference)


def test_float32_has_no_codec() -> None:
    assert ModelCodec.of(TransferSettings(), FlatLayout.of(nn.Linear(2, 2))) is None


def test_only_float32_models_are_encoded() -> None:
    with pytest.raises(SpecError, match=r"transfer\.codec: 'int8' needs a float32 model, got torch\.float64"):
        codec_of("int8", nn.Linear(2, 2, dtype=torch.float64))


def test_settings_of_another_codec_are_refused() -> None:
    with pytest.raises(SpecError, match=r"transfer\.keep: has no effect with the codec 'int8'; only with top-k"):
        validate(TransferSettings, {"codec": "int8", "keep": 0.5}, "transfer.")
    with pytest.raises(SpecError, match="error_feedback: has no effect"):
        validate(TransferSettings, {"error_feedback": False})
