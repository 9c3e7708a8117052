"""Several small models trained as one batched model, with a hand-written backward pass.

For small networks, almost all time goes into starting operations and into the bookkeeping of automatic differentiation,
not into arithmetic. A batched model works on slices of one `[lanes, size]` tensor: each operation is started once for
all lanes, in memory that is allocated once. The backward pass is a few lines per layer.

Chains of Conv2d, MaxPool2d, Flatten, Linear, ReLU and Tanh are supported; `BatchedModel.of` returns None for others.
"""

from fedrelay.models.batched.model import BatchedModel, BoundBatchedModel

__all__ = ["BatchedModel", "BoundBatchedModel"]
