"""Several small models side by side, trained as one, with the backward pass written out.

For small networks almost all time goes into starting operations and into the bookkeeping of automatic differentiation,
not into arithmetic. A stack of models on slices of one `[lanes, size]` tensor starts each operation once for all of
them, in memory that is laid out once; the backward pass is a few lines a layer.

Chains of Conv2d, MaxPool2d, Flatten, Linear, ReLU and Tanh can be batched; `BatchedModel.of` returns None for others.
"""

from fedrelay.models.batched.model import BatchedModel, BoundBatchedModel

__all__ = ["BatchedModel", "BoundBatchedModel"]
