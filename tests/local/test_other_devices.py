"""Training on another device than the CPU, without having one.

The device "meta" stands for a GPU: its tensors have a shape, but no numbers. Every operation is checked for tensors of
several devices, because PyTorch itself does not always refuse them there.
"""

from __future__ import annotations

import pytest
import torch
from tests.local.terms.conftest import first_context
from tests.local.test_batched_trainer import images
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.batched_trainer import BatchedTrainer, batched_model_for
from fedrelay.local.fisher_information import batched_sample_gradients
from fedrelay.local.terms.client_level_privacy import ClientLevelPrivacy
from fedrelay.local.terms.contrastive_loss import ContrastiveLoss
from fedrelay.local.terms.control_variates import ControlVariates
from fedrelay.local.terms.fisher_penalty import FisherPenalty
from fedrelay.local.terms.glam import Glam
from fedrelay.local.terms.mmd_penalty import MmdPenalty
from fedrelay.local.terms.proximal_penalty import ProximalPenalty
from fedrelay.local.terms.sharpness import Sharpness
from fedrelay.local.trainer import PLAIN_CLASSIFICATION, TrainingJob
from fedrelay.models.batched import BatchedModel
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.models.zoo import build_model
from fedrelay.routes.plan import Hop
from fedrelay.tasks.classification import Classification

DEVICE = torch.device("meta")


class OneDevice(TorchDispatchMode):
    """Refuses operations on tensors of several devices. Copies between devices are left out: there are no numbers."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        devices = {each.device for each in tensors if each.dim() or each.device == DEVICE}
        if len(devices) > 1:
            if func.overloadpacket is not torch.ops.aten.copy_:
                raise AssertionError(f"{func} mixes devices")
            target, source = tensors
            assert torch.broadcast_shapes(target.shape, source.shape) == target.shape
            return target
        return func(*args, **kwargs)


@pytest.fixture
def one_device(monkeypatch):
    """Every operation is checked; where code asks a tensor without numbers for some, they are zeros."""
    to_list, to_bool = Tensor.tolist, Tensor.__bool__
    monkeypatch.setattr(Tensor, "tolist", lambda each: [0.0] * each.numel() if each.is_meta else to_list(each))
    monkeypatch.setattr(Tensor, "__bool__", lambda each: not each.is_meta and to_bool(each))
    with OneDevice():
        yield


def train(federation, module, terms=(), task=PLAIN_CLASSIFICATION, **settings):
    """Train five hops in lanes of four, at different places of their routes."""
    layout, clients = FlatLayout.of(module), (0, 1, 5, 3, 2)
    wanted = TrainSettings(device=str(DEVICE), batch_size=4, **settings)
    job = TrainingJob(module, layout, federation, wanted, terms, 5, lanes=4, task=task)
    model, lanes = batched_model_for(job)
    assert model is not None
    trainer, start = BatchedTrainer(job, model, lanes), torch.zeros(layout.size)
    hops = [Hop(1, route, 1, client, route_length=2 + route) for route, client in enumerate(clients)]
    contexts, out = [first_context(job, start, start) for _ in hops], [torch.empty(layout.size) for _ in hops]
    reports = trainer.train_hops(hops, contexts, out)
    assert trainer.flat.device == trainer.gradient.device == DEVICE
    assert [each.samples for each in reports] == [federation.sample_count(client) for client in clients]


def network():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def test_operations_that_mix_devices_are_noticed(one_device):
    here, there = torch.zeros(3), torch.zeros(3, device=DEVICE)
    for mixed in (lambda: there.add_(here), lambda: torch.stack([here, there]), lambda: here[there.long()]):
        with pytest.raises(AssertionError, match="mixes devices"):
            mixed()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"momentum": 0.9, "weight_decay": 0.1, "clip": 1.0},
        {"optimizer": "adam"},
        {"chain_schedule": {"name": "linear", "end": 0.2}, "epochs": 2},
    ],
)
def test_batched_models_train_on_it(toy, one_device, settings):
    train(toy, network(), **settings)


@pytest.mark.parametrize(
    "term",
    [
        ProximalPenalty(mu=0.1),
        ControlVariates(),
        Sharpness(),
        ClientLevelPrivacy(clip=1.0, noise=0.1),
        FisherPenalty(),
        Glam(),
        ContrastiveLoss(),
        MmdPenalty(),
    ],
    ids=lambda term: type(term).__name__,
)
def test_terms_act_on_it(toy, one_device, term):
    train(toy, network(), (term,))


def test_weighted_losses_are_computed_on_it(toy, one_device):
    train(toy, network(), task=Classification(class_weights=(1.0, 2.0, 3.0), label_smoothing=0.1))


def test_convolutions_and_pooling_run_on_it(one_device):
    train(images([5, 9, 3, 8, 4, 7]), build_model("cnn-s", (1, 8, 8), 3))


def test_gradients_of_single_samples_are_computed_on_it(one_device):
    module = network()
    layout = FlatLayout.of(module)
    model = BatchedModel.of(module, layout, (4,))
    assert model is not None
    flat, inputs = (torch.zeros(size, device=DEVICE) for size in (layout.size, (7, 4)))
    found = batched_sample_gradients(model, flat, inputs, torch.zeros(7, dtype=torch.int64, device=DEVICE))
    assert (found.device, found.shape) == (DEVICE, (7, layout.size))
