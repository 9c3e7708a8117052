"""Error feedback: a client keeps the changes that top-k did not send, and adds them to its next ones.

Paper: S. U. Stich, J.-B. Cordonnier, M. Jaggi. Sparsified SGD with Memory. NeurIPS 2018.

Rule: with the change Δ of a hop and the kept change e, the client sends s = top-k(Δ + e) and keeps e ← Δ + e − s. So
all that a client has sent and what it keeps are together all its changes.

Deviations: if two routes reach a client in the same step, both send from the same e and what they keep adds up; the
sum above still holds.
"""

from __future__ import annotations

from typing import ClassVar

from fedrelay.experiment.spec import TransferSettings
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.tensor_declarations import ClientState, TermTensor

UNSENT = "unsent-change"


class ErrorFeedbackTerm(Term):
    """Declares the change that clients keep; the hop runner reads and writes it when it encodes a model."""

    tensors: ClassVar[tuple[TermTensor, ...]] = (ClientState(UNSENT),)
    in_warmup: ClassVar[bool] = True


def error_feedback_terms(transfer: TransferSettings) -> tuple[ErrorFeedbackTerm, ...]:
    """The term that keeps what was not sent, if anything is kept."""
    return (ErrorFeedbackTerm(),) if transfer.codec == "top-k" and transfer.error_feedback else ()
