"""pfl: federated averaging in its simulated backend, one process per core where started with torchrun.

Variants: the model `as-written`, or ordered `channels-last` by its user, which makes convolutions faster.

Generous to pfl: data sets and batches are made once and never shuffled, no metrics are printed, nothing is evaluated.
"""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F  # noqa: N812
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.internal.ops import pytorch_ops
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from workload import BATCH, LEARNING_RATE, POPULATION, STEPS, WARM_UP, Case, report, task


class Classifier(nn.Module):
    """The network in the form that pfl wants; counts its steps."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.steps = 0

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """What a step minimises."""
        self.steps += 1
        return F.cross_entropy(self.network(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        """Something small: pfl insists on judging the very first round."""
        return {"samples": Weighted.from_unweighted(len(y))}


class ClockSettings(TrainingProcessCallback):
    """Notes the end of every round, and the loss after the warm-up."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.ends: list[float] = []
        self.loss = float("nan")

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """One round is done."""
        if central_iteration + 1 == WARM_UP:
            self.loss = self.case.loss(model.pytorch_model.network)
        self.ends.append(time.perf_counter())
        return False, Metrics()


def main() -> None:
    """Train the warm-up rounds and those that are timed."""
    wanted = task(("as-written", "channels-last"))
    case = wanted.case
    rounds = WARM_UP + wanted.rounds
    x, y = case.data()
    users = [PyTorchTensorDataset((x[user], y[user]), user_id=str(user)) for user in range(POPULATION)]
    data = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", range(POPULATION)))
    classifier = Classifier(case.model(channels_last=wanted.variant == "channels-last"))
    model = PyTorchModel(classifier, torch.optim.SGD, torch.optim.SGD(classifier.parameters(), lr=1.0))
    clock = ClockSettings(case)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,
            train_cohort_size=case.clients,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=LEARNING_RATE, local_batch_size=BATCH
        ),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    processes = pytorch_ops.distributed
    assert classifier.steps * processes.world_size == STEPS * case.clients * rounds
    if processes.global_rank == 0:
        seconds = clock.ends[-1] - clock.ends[WARM_UP - 1]
        report(case, seconds, wanted.rounds * case.clients, loss=clock.loss, processes=processes.world_size)
    if processes.world_size > 1:
        torch.distributed.destroy_process_group()  # without it a process now and then aborts on its way out


if __name__ == "__main__":
    main()
