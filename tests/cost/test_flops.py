"""FLOPs of training a module."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fedrelay.cost.flops import training_flops
from fedrelay.errors import SpecError
from fedrelay.models.zoo import build_model


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.of_tokens, self.of_rows = nn.Embedding(9, 4), nn.Linear(4, 3), nn.Linear(2, 3)

    def forward(self, tokens, rows):
        return self.of_tokens(self.table(tokens).mean(1)) + self.of_rows(rows)


class TestFlops:
    def count(self, module, shape, classes=10, samples=3, tokens=False):
        x = torch.zeros(samples, *shape, dtype=torch.long if tokens else torch.float32)
        return training_flops(module, x, torch.zeros(samples, dtype=torch.long), F.cross_entropy)

    def test_a_linear_layer(self):
        # Forward 2·4·3; backward the gradient of the weights alone, since nobody asks for that of the inputs.
        assert self.count(nn.Linear(4, 3), (4,)) == 2 * 4 * 3 * 2

    def test_several_inputs(self):
        inputs = {"rows": torch.zeros(3, 2), "tokens": torch.zeros(3, 5, dtype=torch.long)}
        found = training_flops(TwoInputs(), inputs, torch.zeros(3, dtype=torch.long), F.cross_entropy)
        assert found == 2 * (2 * 2 * 3 + 3 * 4 * 3)

    def test_two_layers(self):
        assert self.count(build_model("mlp", (64,), 10), (64,)) == 2 * (2 * 64 * 64 + 3 * 64 * 10)

    def test_a_convolution(self):
        conv = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 10))
        assert self.count(conv, (1, 8, 8)) == 2 * (2 * 8 * 9 * 36 + 3 * 8 * 36 * 10)

    def test_fedgsps_model_is_near_its_96_million(self):
        assert self.count(build_model("leaf-cnn", (1, 28, 28), 62), (1, 28, 28)) == pytest.approx(96e6, rel=0.07)

    def test_recurrent_layers_count(self):
        steps, cells = 7, 2 * (400 * 8 + 400 * 100)
        deeper = 2 * (400 * 100 + 400 * 100)
        found = self.count(build_model("char-lstm", (7,), 80), (7,), tokens=True)
        assert found == 3 * (steps * (cells + deeper) + 2 * 100 * 80)

    @pytest.mark.parametrize(
        ("module", "shape"),
        [
            (build_model("lenet", (3, 32, 32), 10), (3, 32, 32)),
            (build_model("unet", (3, 32, 32), 10), (3, 32, 32)),
            (
                nn.Sequential(nn.TransformerEncoderLayer(8, 2, batch_first=True), nn.Flatten(), nn.Linear(40, 10)),
                (5, 8),
            ),
        ],
        ids=["lenet", "unet", "transformer"],
    )
    def test_as_many_as_pytorchs_own_counter_finds(self, module, shape):
        x = torch.zeros(2, *shape)
        with FlopCounterMode(display=False) as counter:
            module(x).square().mean().backward()
        found = training_flops(module, x, torch.zeros(2), lambda outputs, _: outputs.square().mean())
        assert found == counter.get_total_flops() / 2 > 0

    def test_per_sample_whatever_the_batch(self):
        module = build_model("cnn-s", (1, 12, 12), 10)
        assert len({self.count(module, (1, 12, 12), samples=samples) for samples in (1, 2, 9)}) == 1

    def test_the_module_and_the_random_stream_stay_as_they_were(self):
        module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, 3)).eval()
        before = {name: value.clone() for name, value in module.state_dict().items()}
        stream = torch.get_rng_state()
        assert self.count(module, (4,), samples=1) > 0
        assert torch.equal(torch.get_rng_state(), stream)
        assert not module.training
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
        assert all(parameter.grad is None for parameter in module.parameters())

    def test_it_is_a_training_step_that_counts(self):
        class Teacher(nn.Linear):
            def forward(self, x):
                return super().forward(super().forward(x) if self.training else x)

        assert self.count(Teacher(3, 3).eval(), (3,)) == 2 * 9 * 5

    def test_double_precision_and_no_gradients_around(self):
        with torch.no_grad():
            assert self.count(nn.Linear(4, 3).double(), (4,)) == 48


def test_a_module_that_cannot_be_trained_is_one_line():
    class Broken(nn.Linear):
        def forward(self, x):
            if self.training:
                raise ValueError("no such luck")
            return super().forward(x)

    with pytest.raises(SpecError, match=r"^model: cannot be trained: ValueError: no such luck$"):
        training_flops(Broken(4, 3), torch.zeros(2, 4), torch.zeros(2, dtype=torch.long), F.cross_entropy)
