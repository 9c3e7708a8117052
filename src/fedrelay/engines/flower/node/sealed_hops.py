"""Hops of sealed routes at a node: open what the node before sealed, and seal the trained model for the next one.

The node trusts the server with nothing here. It knows the keys of all nodes from the roster that its owner has pinned.
It derives from its own request where in the run an envelope must come from. A model leaves in the clear only at the end
of a route, with the work of enough different clients in it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from fedrelay.data.evaluation_samples import evaluation_samples
from fedrelay.engines.flower.credentials import PublicKey
from fedrelay.engines.flower.message_bytes import message_from_bytes, message_to_bytes, padded, unpadded
from fedrelay.engines.flower.messages import (
    ENCODED,
    ENVELOPE,
    SCALARS,
    SEALED,
    BadMessage,
    Header,
    Message,
    ModelEncoding,
    float_field,
    int_field,
    pack_models,
    scalar_names,
    text_field,
    unpack_models,
)
from fedrelay.engines.flower.node.outbox import Departure, Outbox
from fedrelay.engines.flower.sealing import Handover, NodeIdentity, open_envelope, seal, sealing_key_of
from fedrelay.engines.flower.sealing_certificate import SealingCertificate
from fedrelay.engines.local.executor import WorkerContext, one_thread
from fedrelay.errors import EngineError
from fedrelay.local.evaluation import evaluate
from fedrelay.local.hop_context import HopContext
from fedrelay.local.sealed_route_rules import erasing_settings, least_clients, uneven_payload, uneven_rates
from fedrelay.local.terms.tensor_declarations import Payload, ServerState
from fedrelay.local.trainer import TrainingJob
from fedrelay.robustness.guard import EMPTY, check_others, check_weights, max_abs_weights
from fedrelay.routes.plan import ENVELOPE_BYTES, Hop

ROUNDING = 1e-4
"""Relative tolerance for the norm of what several hops have changed."""

FAILED_AFTER_TRAINING = "its own model was not finite or too large after training"
"""All that a node says about a model of its own that it does not hand on."""

MOST_HOPS = 100_000
"""Hops that a route may have."""

_AUTHENTICATION = 144  # signature, ephemeral key and tag of an envelope with keys of `fedrelay key`


class SealedPlace(NamedTuple):
    """Where in a run a sealed hop is, as its request says."""

    run: str
    hop: Hop
    plan: tuple[str, ...]
    """The nodes of the route."""

    from_hop: int | None
    """The hop that the model comes from; None: from the server."""

    to_hop: int | None
    """The hop that the model is for; None: it goes back to the server."""

    receiver: SealingCertificate | None
    job: str = ""
    """SHA-256 of what all hops of the route have in common: see `_with_common_job`."""

    def handover(self, from_hop: int, to_hop: int) -> Handover:
        """The handover between two hops of the route."""
        hop = self.hop
        return Handover(self.run, hop.round, hop.attempt, hop.route, self.plan, from_hop, to_hop, self.job)


@dataclass(frozen=True)
class Travelled:
    """What a sealed model carries besides its tensors: sums over its hops, of which the server gets the mean."""

    contributors: tuple[str, ...] = ()
    """The nodes whose work is in the model."""

    hops: int = 0
    steps: int = 0
    loss: float | None = 0.0
    """The training loss summed over all steps; None if an owner withholds it."""

    length: float = 0.0
    """The lengths of all updates, where they are measured."""

    def plus(self, node: str, reply: Header) -> Travelled:
        """The same after one more hop."""
        steps, loss = int_field(reply, "steps"), reply.get("loss")
        known = self.loss is not None and loss is not None and math.isfinite(loss)
        return Travelled(
            tuple(dict.fromkeys((*self.contributors, node))),
            self.hops + 1,
            self.steps + steps,
            self.loss + loss * steps if known and self.loss is not None and loss is not None else None,
            self.length + float_field(reply, "length"),
        )

    @classmethod
    def of(cls, plain: Any) -> Travelled:
        """The same from plain data.

        Raises:
            BadMessage: It is impossible.
        """
        if not isinstance(plain, Mapping) or not isinstance(plain.get("contributors"), list):
            raise BadMessage("it does not say whose work it has")
        loss = None if plain.get("loss") is None else float_field(plain, "loss")
        names = tuple(str(name) for name in plain["contributors"])
        hops, steps = int_field(plain, "hops", MOST_HOPS), int_field(plain, "steps")
        return cls(names, hops, steps, loss, float_field(plain, "length"))


class Received(NamedTuple):
    """What a node received: the request as an open one, where it is in its run, and what travelled with it."""

    request: Message
    place: SealedPlace
    travelled: Travelled
    problem: str = ""
    """Why the node does not train the model; empty if it does."""


@dataclass(frozen=True)
class SealedHops:
    """The node's part in sealed routes."""

    name: str
    """The name that the roster gives to this node."""

    identity: NodeIdentity
    keys: Mapping[str, PublicKey]
    """The pinned roster: name → key of every node."""

    outbox: Outbox

    def place(self, header: Header, hop: Hop, job: TrainingJob) -> SealedPlace:
        """Where a sealed request is in its run.

        Raises:
            BadMessage: The request is impossible, or its route has nodes that are not in the roster.
            EngineError: The route has too few clients, or the job would show the server one client's change.
        """
        fields = header.get(SEALED)
        if not isinstance(fields, Mapping) or not isinstance(fields.get("plan"), list):
            raise BadMessage("a sealed hop needs its route")
        plan = tuple(map(str, fields["plan"]))
        for name in plan:
            if name not in self.keys:
                raise BadMessage(f"{name!r} is on the route, but not in the roster that the owner of this node pinned")
        if hop.index >= len(plan) or plan[hop.index] != self.name or hop.route_length != len(plan):
            raise BadMessage(f"this hop of the route is not that of {self.name!r}")
        if header.get("tamper") is not None:
            raise EngineError("faults that tamper with models are simulated; sealed routes do not take them")
        _check_enough(set(plan), job, "the route has")
        if name := uneven_payload(job.terms):
            raise EngineError(f"{name!r} is no sum over the clients of a route, so it never travels on a sealed one")
        if problem := uneven_rates(job, hop) or erasing_settings(job, hop):
            raise EngineError(problem)
        if job.codec is not None and job.codec.codec.needs_reference:
            # At the end of a route, the change from what this node received is its own work and nobody else's.
            raise EngineError("transfer.codec: a codec of changes shows the server the last client's own; use another")
        before, after = (
            None if fields.get(name) is None else int_field(fields, name, len(plan) - 1)
            for name in ("from_hop", "to_hop")
        )
        if (before is not None and before >= hop.index) or (after is not None and after <= hop.index):
            raise BadMessage("hops of a sealed route come one after another")
        try:
            receiver = None if after is None else SealingCertificate.model_validate(fields.get("receiver"))
        except ValidationError:
            raise BadMessage("the sealing key of the next node cannot be read") from None
        return SealedPlace(text_field(header, "run"), hop, plan, before, after, receiver)

    def receive(self, request: Message, place: SealedPlace, worker: WorkerContext) -> Received:
        """Open the envelope of a request and check the model in it, before anything is trained.

        Raises:
            BadMessage: The envelope is not what the node before sealed for this hop, or the request has tensors that
                only an envelope may have.
        """
        header = {name: value for name, value in request.header.items() if name != SEALED}
        job, scalars = worker.job, scalar_names(worker.job)
        in_request = ModelEncoding.of_request(job.codec)
        clear = unpack_models(request, job.layout, scalars=scalars, encoding=in_request)
        _check_names(set(clear), request.header, place, job)
        place = _with_common_job(place, request.header, clear, job)
        if place.from_hop is None:
            return Received(Message(header, request.arrays), place, Travelled())
        envelope = request.arrays.get(ENVELOPE)
        if envelope is None or envelope.dtype != np.uint8:
            raise BadMessage("it has no envelope")
        handover = place.handover(place.from_hop, place.hop.index)
        content = open_envelope(
            envelope.tobytes(), handover, self.identity.sealing, self.keys[place.plan[place.from_hop]]
        )
        try:
            message = message_from_bytes(unpadded(content))
            travelled = Travelled.of(message.header.get("travelled"))
            wanted = ["model", *(f"payload {name}" for name in job.tensor_names(Payload))]
            models = unpack_models(message, job.layout, wanted, scalars, ModelEncoding.of_handover(job.codec))
        except BadMessage as error:
            return Received(request, place, Travelled(), str(error))
        model = models.pop("model")
        problem = _problem(worker, model, models, clear.get("round"), travelled.hops, request.header)
        if not set(travelled.contributors) <= set(place.plan[: place.hop.index]):
            problem = "it has the work of nodes that are not on the route"
        opened = pack_models(header, {**clear, "recv": model, **models}, scalars, in_request)
        return Received(opened, place, travelled, problem)

    def accept(self, received: Received, context: HopContext, job: TrainingJob) -> None:
        """Remember a request before it is trained; the node trains no other one for the same hop.

        Args:
            received: What the node received.
            context: All tensors that the hop depends on.
            job: The job.

        Raises:
            EngineError: The node has trained, or handed on, something that this request may be compared with.
        """
        place, travelled = received.place, received.travelled
        if place.to_hop is None:
            _check_enough({*travelled.contributors, self.name}, job, "the model has the work of")
        tensors = {"recv": context.received, **_named("state", context.client_state)}
        tensors |= _named("payload", context.payload)
        request = json.dumps([place.from_hop, place.job, asdict(travelled), _digests(tensors)], sort_keys=True)
        self.outbox.accept(place.run, place.hop, place.plan, hashlib.sha256(request.encode()).hexdigest())
        departure: Departure = "in the clear" if place.to_hop is None else "sealed"
        self.outbox.choose_departure(_digest(context.received), departure)

    def hand_on(self, received: Received, reply: Message) -> Message:
        """The reply as it leaves the node: sealed for the next one, or at the end of a route with means over its hops.

        Raises:
            EngineError: The model must not leave in this way.
        """
        place = received.place
        if reply.header.get("refused"):  # why would tell the server about a model that it must not see
            known = {name: reply.header[name] for name in ("kind", "request", "seconds")}
            return Message({**known, "refused": FAILED_AFTER_TRAINING})
        travelled = received.travelled.plus(self.name, reply.header)
        if place.to_hop is None:
            loss = None if travelled.loss is None else travelled.loss / max(1, travelled.steps)
            means = {"loss": loss, "length": travelled.length / travelled.hops, "shortened": False}
            return Message({**reply.header, **means}, reply.arrays)
        names = {name: reply.header[name] for name in ("names", SCALARS, ENCODED) if name in reply.header}
        kept = {"travelled": asdict(travelled), "job": place.job, "plan": list(place.plan)}
        content = Message({**names, **kept}, reply.arrays)
        self.outbox.put(place.run, place.hop, content)
        needed = ("kind", "request", "samples", "steps", "seconds")
        header = {name: reply.header[name] for name in needed}
        return self._sealed(place, content, {**header, "loss": None})

    def seal_again(self, place: SealedPlace) -> Message:
        """The model of an earlier hop, sealed for another node.

        Raises:
            EngineError: It is no longer kept, or the request is for another route.
        """
        if place.to_hop is None:
            raise EngineError("the model of this hop has left this node sealed, so it never leaves in the clear")
        content = self.outbox.get(place.run, place.hop)
        if content.header.get("plan") != list(place.plan):
            raise EngineError("the model of this hop was trained for a route with other nodes, so it stays on that one")
        return self._sealed(place._replace(job=text_field(content.header, "job")), content, {"kind": "reseal"})

    def _sealed(self, place: SealedPlace, content: Message, header: Header) -> Message:
        assert place.to_hop is not None
        assert place.receiver is not None
        name = place.plan[place.to_hop]
        receiver = sealing_key_of(name, place.receiver, self.keys[name])
        handover = place.handover(place.hop.index, place.to_hop)
        size = content.bytes + ENVELOPE_BYTES - _AUTHENTICATION
        plain = padded(message_to_bytes(content), size, ENVELOPE_BYTES)
        sealed = seal(plain, handover, self.identity.key, receiver)
        return Message(header, {ENVELOPE: np.frombuffer(sealed, np.uint8)})


def _check_names(names: set[str], header: Header, place: SealedPlace, job: TrainingJob) -> None:
    """Refuse tensors that only an envelope may have: with them, the server would choose what a node trains."""
    allowed = {f"server {name}" for name in job.tensor_names(ServerState)}
    if place.from_hop is None:
        allowed |= {"recv", *(f"payload {name}" for name in job.tensor_names(Payload))}
    if _needs_round_model(header, job):
        allowed.add("round")
        if place.from_hop is not None and "round" not in names:
            raise BadMessage("it has no model of the round")
    expected = ", ".join(map(repr, sorted(allowed))) or "none"
    for name in sorted(names - allowed):
        raise BadMessage(f"it has {name!r} in the clear; this hop of a sealed route takes {expected}")


def _needs_round_model(header: Header, job: TrainingJob) -> bool:
    """Whether the hops of a sealed route use the round's model, in their terms or to check what they receive."""
    return job.needs_round_model or job.guard.norm is not None or header[SEALED].get("tolerance") is not None


def _with_common_job(place: SealedPlace, header: Header, clear: Mapping[str, Tensor], job: TrainingJob) -> SealedPlace:
    """The place with a digest of what must be the same at all hops of a route.

    A last hop with other settings that changes nothing would show the model of the hop before. A hop that checks one
    model against many models of the round would tell how far it is from each of them.
    """
    shared = {name: tensor for name, tensor in clear.items() if name.startswith("server ")}
    if _needs_round_model(header, job):
        shared["round"] = clear["round"] if "round" in clear else clear["recv"]
    fields = [header.get(name) for name in ("job", "typical_norm", "merges")]
    settings = json.dumps([*fields, header[SEALED].get("tolerance"), _digests(shared)], sort_keys=True)
    return place._replace(job=hashlib.sha256(settings.encode()).hexdigest())


def _named(kind: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{kind} {name}": tensor for name, tensor in tensors.items()}


def _digests(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    return {name: _digest(tensor) for name, tensor in tensors.items()}


def _digest(tensor: Tensor) -> str:
    """The SHA-256 of the values of a tensor."""
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def _check_enough(names: set[str], job: TrainingJob, what: str) -> None:
    least = least_clients(job.terms)
    if len(names) < least:
        raise EngineError(f"{what} {len(names)} different clients, a sealed route of this method needs {least}")


def _problem(
    worker: WorkerContext,
    model: Tensor,
    payload: Mapping[str, Tensor],
    round_model: Tensor | None,
    hops: int,
    header: Header,
) -> str:
    """Why a received model is not trained; empty if it is. The server cannot check it, because it cannot read it."""
    job = worker.job
    largest = max_abs_weights(model[: job.layout.float_size])[0]
    if reason := check_weights(job.guard, largest) or check_others({"payload": payload}):
        return reason
    if largest == 0:
        return EMPTY
    if round_model is None:
        return ""
    trained, typical = job.layout.trained_size, float_field(header, "typical_norm")
    if job.guard.norm is not None and typical > 0:
        changed = float(torch.linalg.vector_norm(model[:trained] - round_model[:trained]))
        if changed > hops * job.guard.norm * typical * (1 + ROUNDING):
            return f"a longer way from the round's model than {hops} hops may go"
    tolerance, own = header[SEALED].get("tolerance"), evaluation_samples(job.federation, "test")
    if tolerance is None or not own.size:
        return ""
    module = worker.hop_runner.flat_module
    with one_thread():
        before, after = (evaluate(module, each, job.task, own).mean_loss for each in (round_model, model))
    return "a higher loss on held-out samples" if after - before > float_field(header[SEALED], "tolerance") else ""
