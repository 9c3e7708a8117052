"""Several models trained as one batched model, each on its own client.

Lanes may differ in size. A short batch is padded with samples of weight 0, and a client with fewer steps drops out when
it is done, so every lane gets the same gradients as alone; only rounding differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from fedrelay.data.samples import Samples
from fedrelay.local.batched_loss import BlockLoss, TermLosses, loss_of_block
from fedrelay.local.batched_teachers import BatchedTeachers
from fedrelay.local.fisher_information import LaneClients, lane_fisher_diagonals, lane_labels
from fedrelay.local.gradient_at_moved_model import gradient_at_moved_model
from fedrelay.local.hop_context import HopContext, Labels, TrainedHop, batch_contexts, write_back
from fedrelay.local.hop_watcher import HopWatcher
from fedrelay.local.lane_sample_schedule import LaneSampleBlock, schedule
from fedrelay.local.optimizers.base import HopOptimizer
from fedrelay.local.optimizers.state_terms import first_state
from fedrelay.local.seed_torch import seed_torch
from fedrelay.local.terms.base import LossTerm, call_in_place, overriding
from fedrelay.local.trainer import (
    EagerTrainer,
    SampleOrders,
    Trainer,
    TrainingJob,
    hop_key,
    run_end_hooks,
)
from fedrelay.models.batched import BatchedModel, BoundBatchedModel
from fedrelay.models.flat_layout import FlatModule
from fedrelay.rng import torch_seed
from fedrelay.robustness.guard import max_abs_weights
from fedrelay.routes.arrival import HopReport
from fedrelay.routes.plan import Hop
from fedrelay.user_code import is_built_in

MAX_MULTIPLICATIONS = 25_000_000
"""The largest cost of a forward pass of all lanes."""

MAX_WINDOW_VALUES = 600_000
"""The most values in the windows of convolutions for which several lanes are trained together."""


def batched_model_for(job: TrainingJob) -> tuple[BatchedModel | None, int]:
    """The batched model of a job and how many models it trains at once; (None, 1) if models are trained one by one.

    The answer depends on the job alone, never on timing: batching changes how results are rounded.

    Batching saves the overhead of starting operations, which matters less the longer they take. Measured with batches
    of 4 to 256: models with 10⁵ multiplications per forward pass gained 7 to 12 times, with 10⁶ 3 to 4 times, with 10⁷
    1.4 times, and beyond 2.5·10⁷ between -7 and 21 %.

    The windows of convolutions are copied, which takes far more memory than the images. With 1.3 million values in them
    three lanes took a quarter longer than one after another, as soon as another process trained beside them, because
    caches that cores share could not hold both. Up to 600,000 each lane was nearly as fast beside another process as
    alone. Dense models have no windows; for them, up to 16 lanes were as fast as fewer or faster, within 3 %.
    """
    batchable = job.optimizer.batchable and all(term.batchable for term in job.terms)
    supported = job.task.batchable and batchable and job.federation.in_memory
    if supported and job.lanes > 1 and job.train.precision == "float32":
        model = BatchedModel.of(job.module, job.layout, job.federation.sample_shape)
        if model is not None:
            lanes = min(job.lanes, MAX_MULTIPLICATIONS // (model.multiplications * job.train.batch_size))
            windows = model.window_values * job.train.batch_size
            if windows * lanes > MAX_WINDOW_VALUES:
                lanes = max(1, MAX_WINDOW_VALUES // windows)
            return (model, lanes) if lanes else (None, 1)
    return None, 1


def trainer_for(job: TrainingJob, flat_module: FlatModule) -> Trainer:
    """The fastest trainer for a job."""
    model, lanes = batched_model_for(job)
    return EagerTrainer(job, flat_module) if model is None else BatchedTrainer(job, model, lanes)


class BatchedTrainer:
    """Trains small models as one batched model, with a hand-written backward pass."""

    def __init__(self, job: TrainingJob, model: BatchedModel, lanes: int) -> None:
        self.job = job
        self.model = model
        self.lanes = lanes
        self.sample_orders = SampleOrders(job)
        self.moves = overriding(job.terms, "move_before_gradient")
        self.gradient_hooks = overriding(job.terms, "add_gradient")
        self.has_own_terms = not all(is_built_in(type(term)) for term in job.terms)
        self.device = torch.device(job.train.device)
        self.flat = torch.zeros(lanes, job.layout.size, dtype=job.layout.dtype, device=self.device)
        self.gradient = torch.zeros_like(self.flat)
        self.bound_for_width = model.binder(self.flat, self.gradient)
        loss_terms = [term for term in job.terms if isinstance(term, LossTerm)]
        self.term_losses = TermLosses(loss_terms, BatchedTeachers(model, self.flat)) if loss_terms else None

    def train_hops(
        self,
        hops: Sequence[Hop],
        contexts: Sequence[HopContext],
        out: Sequence[Tensor],
        watcher: HopWatcher | None = None,
    ) -> list[HopReport]:
        """Train as many models at once as there are lanes, those with the most steps first. Nobody watches them."""
        samples = [self.job.federation.train_samples(hop.client).load() for hop in hops]
        sizes = [client.size for client in samples]
        steps = [self.job.steps_with(size) for size in sizes]
        order = sorted(range(len(hops)), key=lambda number: (-steps[number], -sizes[number]))
        reports: dict[int, HopReport] = {}
        for begin in range(0, len(order), self.lanes):
            numbers = order[begin : begin + self.lanes]
            found = self._train_lanes(
                [hops[number] for number in numbers],
                [contexts[number] for number in numbers],
                [samples[number] for number in numbers],
                [sizes[number] for number in numbers],
                [steps[number] for number in numbers],
                [out[number] for number in numbers],
            )
            reports |= zip(numbers, found, strict=True)
        return [reports[number] for number in range(len(hops))]

    def _train_lanes(
        self,
        hops: list[Hop],
        contexts: list[HopContext],
        samples: list[Samples],
        sizes: list[int],
        steps: list[int],
        out: list[Tensor],
    ) -> list[HopReport]:
        flat = self.flat[: len(hops)]
        received = [context.received for context in contexts]
        if flat.is_cpu:
            torch.stack(received, out=flat)
        else:
            flat.copy_(torch.stack(received))
        context = batch_contexts(contexts, self.device) if self.job.uses_context else None
        if self.has_own_terms:  # they may draw random numbers in a way that `check_terms_in_lanes` did not see
            seed_torch(torch_seed(self.job.seed, "dropout", *hop_key(hops[0])), self.job.train.device)
        rates = [self.job.learning_rate(hop) for hop in hops]
        lr = rates[0] if len(set(rates)) == 1 else flat.new_tensor(rates).unsqueeze(1)
        state = first_state(self.job.terms, context) if context is not None else None
        optimiser = self.job.optimizer.start_hop(self.job.train, lr, flat, state)
        losses = self._run_steps(hops, samples, sizes, steps, context, optimiser).tolist()
        norms, limits = [0.0] * len(hops), [torch.inf] * len(hops)
        if context is not None:
            step_column = flat.new_tensor(steps).unsqueeze(1)
            fisher = partial(self._fisher, hops, samples, sizes)
            outcome = TrainedHop(flat, flat, step_column, lr, flat, context, optimiser.state, fisher)
            norms = run_end_hooks(self.job, hops, context, outcome).flatten().tolist()
            limits = context.max_update_norm.flatten().tolist()
            write_back(context, contexts)
        for target, model in zip(out, flat.unbind(), strict=True):
            target.copy_(model)
        lanes = zip(sizes, steps, losses, max_abs_weights(flat), norms, limits, rates, strict=True)
        return [
            HopReport(size, count, loss / max(1, count), largest, norm, norm > limit, lr=rate)
            for size, count, loss, largest, norm, limit, rate in lanes
        ]

    def _run_steps(
        self,
        hops: list[Hop],
        samples: list[Samples],
        sizes: list[int],
        steps: list[int],
        context: HopContext | None,
        optimiser: HopOptimizer,
    ) -> Tensor:
        """Run all steps of every lane; returns the sum of each lane's losses."""
        flat = self.flat[: len(hops)]
        clients = self._clients(samples, sizes)
        orders = [self.sample_orders.of_hop(hop, size) for hop, size in zip(hops, sizes, strict=True)]
        totals = torch.zeros(len(hops), dtype=torch.float64, device=self.device)
        last = torch.zeros_like(flat) if self.moves else None
        for block in schedule(orders, sizes, steps, clients.width, flat):
            totals += self._run_block(block, clients.x, clients.y, optimiser, context, last)
        return totals

    def _clients(self, samples: list[Samples], sizes: list[int]) -> LaneClients:
        x = torch.cat([client.single_input for client in samples]).flatten(1).to(self.flat)
        y = torch.cat([client.y for client in samples]).to(self.device)
        # Rounded up, so that clients of all sizes share the buffers of a few widths.
        width = min(self.job.train.batch_size, -(-max(1, *sizes) // 8) * 8)
        return LaneClients(x, y, sizes, width)

    def _fisher(self, hops: list[Hop], samples: list[Samples], sizes: list[int], labels: Labels) -> Tensor:
        clients = self._clients(samples, sizes)
        bound = self.bound_for_width(clients.width)(len(hops))
        if labels == "model":
            seeds = [torch_seed(self.job.seed, "fisher", *hop_key(hop)) for hop in hops]
            clients = replace(clients, y=lane_labels(bound, clients, seeds))
        return lane_fisher_diagonals(bound, self.job.task, clients)

    def _run_block(
        self,
        block: LaneSampleBlock,
        x: Tensor,
        y: Tensor,
        optimiser: HopOptimizer,
        context: HopContext | None,
        last: Tensor | None,
    ) -> Tensor:
        """Run the steps of one block; returns the sum of each lane's losses.

        `last` is the gradient of the step before, if terms move models, and that of the block's last step afterwards.
        """
        bound_for_lanes, targets = self.bound_for_width(block.rows.shape[2]), y[block.rows]
        loss = loss_of_block(self.job.task, block, targets, self.model.classes)
        added = torch.zeros(len(targets[0]), dtype=torch.float64, device=self.device)
        for span, lanes in block.spans():
            bound = bound_for_lanes(lanes)
            active = context.first_lanes(lanes) if context is not None else None
            for number, step in enumerate(loss.steps(span, lanes), span.start):
                bound.load(x, block.rows[number, :lanes].view(-1))
                backward = partial(self._backward, bound, loss, step, active, block, targets, number)
                if last is None:
                    losses = backward()
                else:
                    losses = gradient_at_moved_model(self.moves, bound.flat, bound.gradient, last[:lanes], backward)
                if losses is not None:
                    added[:lanes] += losses
                if active is not None:
                    for term in self.gradient_hooks:
                        call_in_place(term.add_gradient, bound.gradient, bound.flat, active)
                optimiser.step(bound.flat, bound.gradient)
        return loss.totals() + added

    def _backward(
        self,
        bound: BoundBatchedModel,
        loss: BlockLoss,
        step: tuple[Tensor, ...],
        context: HopContext | None,
        block: LaneSampleBlock,
        targets: Tensor,
        number: int,
    ) -> Tensor | None:
        """Compute the gradient of a step for the samples that are loaded; returns what terms add to the losses."""
        bound.forward()
        loss.write_gradient(bound, *step)
        losses = of_features = None
        if self.term_losses is not None and context is not None:
            lanes = len(bound.flat)
            weights = block.sample_weights[number, :lanes, 0]
            losses, of_features = self.term_losses.add_gradient(bound, targets[number, :lanes], weights, context)
        bound.backward(of_features)
        return losses
