"""The desk of a node: a question in, an answer out. It knows nothing of networks."""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

import fedrelay.experiment.catalogue  # noqa: F401  # every term and portrait that may be asked for
from fedrelay.data.federation import ArrayFederation, Federation, Samples
from fedrelay.data.own_samples import MOST_CLASSES
from fedrelay.engines.flower.job_description import job_from_description
from fedrelay.engines.flower.messages import (
    BadMessage,
    Message,
    nothing_judged,
    number,
    one_line,
    packed,
    text,
    unpacked,
    verdict_header,
    whole,
)
from fedrelay.engines.flower.node.answers import Answers
from fedrelay.engines.flower.node.node_federation import NodeFederation, NodeFederationWithPublic
from fedrelay.engines.flower.node.owner_policy import DeclinedByOwner, OwnerPolicy, PrivacyBudget
from fedrelay.engines.flower.node.state_files import KEPT, StateFiles
from fedrelay.engines.local.batching import RouteBatch
from fedrelay.engines.local.engine import BEFORE, ProfileClients
from fedrelay.engines.local.executor import WorkerContext, one_thread
from fedrelay.errors import EngineError, FedRelayError
from fedrelay.experiment.serialize import from_plain
from fedrelay.local.client_profile import ClientProfiler
from fedrelay.local.evaluation import chunks, evaluate_chunk
from fedrelay.local.hop import PlannedHop
from fedrelay.local.hop_context import HopContext
from fedrelay.local.terms.dp import Dp
from fedrelay.local.trainer import TrainingJob
from fedrelay.robustness.guard import TypicalHop
from fedrelay.routes.overlay import Tamper, Tampering
from fedrelay.routes.plan import Hop

LARGEST_MODEL = 2 * 10**9
"""Bytes of a model that is built; a server may ask for any."""

JOBS = 3
"""So many jobs are kept ready: the rounds', and those of profiles."""


MOST_PARTS = 10_000
"""So many routes may visit a client side by side."""


class NodeService:
    """Everything a node can be asked."""

    def __init__(
        self,
        data: ArrayFederation,
        folder: Path,
        *,
        module: nn.Module | None = None,
        device: str = "cpu",
        share_histogram: bool = False,
        floor: OwnerPolicy | None = None,
        budget: PrivacyBudget | None = None,
        keep_states: int = KEPT,
        largest_model: int = LARGEST_MODEL,
    ) -> None:
        self.data, self.module, self.device, self.share_histogram = data, module, device, share_histogram
        self.floor, self.budget, self.largest_model = floor, budget, largest_model
        self.states = StateFiles(folder / "states", keep_states)
        self.answers = Answers(self.states)
        self.salt = _drawn_once(folder / "salt")
        self.places: OrderedDict[str, WorkerContext] = OrderedDict()

    def answer(self, question: Message) -> Message:
        """Do what is asked; whatever that is, only `BadMessage` and `EngineError` can come of it."""
        try:
            return self._answer(question)
        except (BadMessage, DeclinedByOwner):
            raise
        except Exception as error:
            self.places.clear()  # whoever comes next should not find a workshop as it was left in the middle of a step
            words = str(error) if isinstance(error, FedRelayError) else f"{type(error).__name__}: {error}"
            raise EngineError(one_line(words)) from None

    def _answer(self, question: Message) -> Message:
        match question.header.get("kind"):
            case "who":
                return Message(self.facts())
            case "turn":
                return self._turn(question)
            case "portray":
                return self._portray(question)
            case "judge":
                return self._judge(question)
        raise BadMessage("a question that nobody here understands")

    def facts(self) -> dict[str, Any]:
        """What the server may know of the samples."""
        data = self.data
        # A digest of data that few others could have had would tell who has the same; with salt it tells nobody.
        salted = hashlib.sha256(self.salt + data.fingerprint().encode()).hexdigest()
        return {
            "samples": data.size(0),
            "tests": len(data.test.y) if self.floor is None else 0,
            "classes": data.classes,
            "shape": list(data.sample_shape),
            "kind": data.kind,
            "sequence": data.dataset.y_train.ndim > 1,
            "fingerprint": salted,
            "histogram": data.histogram(0).tolist() if self.share_histogram else None,
            "version": version("fedrelay"),
            "least_noise": None if self.floor is None else self.floor.noise,
        }

    def _turn(self, question: Message) -> Message:
        began, header = time.monotonic(), question.header
        run = text(header, "run")
        self.states.forget_before(run, whole(header, "settled"))
        place, turn, turn_number = self._place(header), _turn_of(header), whole(header, "turn")
        if self.floor is not None:
            self.floor.check(place.job)
        noisy = any(isinstance(term, Dp) for term in place.job.terms)
        if noisy and (given := self.answers.get(run, question)) is not None:
            return self._given_again(given, run, turn_number)
        visit = self._visit(question, place)
        usual = TypicalHop(number(header, "usual"))
        if self.budget is not None:
            self.budget.spend()
        model = torch.empty_like(visit.recv)
        with one_thread():
            [report] = place.hop_runner.take([turn], [visit], [model], usual)
        said = {"kind": "turn", "turn": turn_number, "samples": report.samples, "steps": report.steps}
        loss = report.loss if self.floor is None else None
        said |= {"loss": loss, "length": report.length, "shortened": report.shortened}
        if report.refused:
            answer = Message({**said, "refused": report.refused, "seconds": time.monotonic() - began})
        else:
            if visit.kept:
                self.states.put(run, turn_number, visit.kept)
            models = {"model": model} | {f"payload {name}": tensor for name, tensor in visit.payload.items()}
            answer = packed({**said, "seconds": time.monotonic() - began}, models)
        if noisy:  # before it leaves: afterwards a copy could be asked for that was never kept
            self.answers.put(run, question, answer)
        return answer

    def _given_again(self, given: Message, run: str, turn_number: int) -> Message:
        """The answer that was given to the same question before, under the number of this one."""
        before = whole(given.header, "turn")
        if before != turn_number and self.states.has(run, before):
            self.states.put(run, turn_number, self.states.get(run, before, (), ()))
        return Message({**given.header, "turn": turn_number}, given.arrays)

    def _visit(self, question: Message, place: WorkerContext) -> HopContext:
        """The tensors of a turn; what was not sent, or not kept yet, is zero."""
        header, job = question.header, place.job
        models = unpacked(question, job.layout)
        if "recv" not in models:
            raise BadMessage("no model to train")
        recv = models["recv"]

        def sent(kind: str, names: tuple[str, ...]) -> dict[str, Tensor]:
            return {name: models.get(f"{kind} {name}", torch.zeros_like(recv)) for name in names}

        names = job.names("state")
        state: Mapping[str, Tensor] = {}
        if names:
            found = self.states.get(text(header, "run"), whole(header, "state"), _parts(header), job.adding_up)
            state = {name: found.get(name, torch.zeros_like(recv)) for name in names}
            if any(tensor.shape != recv.shape or tensor.dtype != recv.dtype for tensor in state.values()):
                raise EngineError("what this client kept belongs to another model")
        return HopContext(
            recv,
            models.get("round", recv),
            sent("server", job.names("server")),
            state,
            {name: torch.zeros_like(recv) for name in names},
            sent("payload", job.names("payload")),
        )

    def _portray(self, question: Message) -> Message:
        if self.floor is not None:
            raise self.floor.decline("a profile")
        place, client = self._place(question.header), whole(question.header, "client")
        portrait = from_plain(ClientProfiler, question.header.get("portrait"))
        public = [question.arrays.get(f"public {part}") for part in "xy"]
        own = place.job.federation
        own = own.members if isinstance(own, NodeFederationWithPublic) else own
        place.job = replace(place.job, federation=_shown(own, public))
        place.models = unpacked(question, place.job.layout, ["start"])["start"].unsqueeze(0)
        with one_thread():
            [(_, vector)] = ProfileClients(portrait, RouteBatch(BEFORE, ((0, (client,)),))).run(place)
        return Message({"kind": "portray"}, {"vector": np.ascontiguousarray(vector)})

    def _judge(self, question: Message) -> Message:
        if self.floor is not None:
            raise self.floor.decline("a verdict on samples")
        place = self._place(question.header)
        model = unpacked(question, place.job.layout, ["model"])["model"]
        test, verdict = self.data.test, nothing_judged(place.job.federation.classes)
        with one_thread():
            for chunk in range(chunks(test)):
                verdict += evaluate_chunk(place.hop_runner.bench, model, test, chunk)
        return Message({"kind": "judge", **verdict_header(verdict)})

    def _place(self, header: Mapping[str, Any]) -> WorkerContext:
        """The workplace of a brief: one that is there already, or a new one."""
        brief = str(header.get("brief", ""))
        if brief not in self.places:
            job = self._job(brief)
            with one_thread():
                self.places[brief] = WorkerContext(job, torch.empty(0))
            while len(self.places) > JOBS:
                self.places.popitem(last=False)
        self.places.move_to_end(brief)
        return self.places[brief]

    def _job(self, brief: str) -> TrainingJob:
        try:
            said = json.loads(brief)
            classes, mean_size = whole(said, "classes", MOST_CLASSES), number(said, "mean_size")
            if classes < self.data.classes:
                raise EngineError(f"there are labels of {self.data.classes} classes here, not {classes}")
            if mean_size <= 0:
                raise BadMessage("clients without samples")
            holding = NodeFederation(self.data, classes, mean_size)
            return job_from_description(brief, holding, self.module, self.device, self.largest_model)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise BadMessage(f"a brief that cannot be read ({type(error).__name__})") from None


def _shown(own: Federation, public: list[Any]) -> Federation:
    """A node's federation with the public samples of a question, if it has some."""
    if any(part is None for part in public):
        return own
    x, y = (np.array(part) for part in public)
    usual = own.samples(0).x.numpy().dtype
    if x.shape[1:] != own.sample_shape or y.shape != (len(x),) or not len(x) or x.dtype != usual or y.dtype != np.int64:
        raise BadMessage("public samples of another shape")
    if y.min() < 0 or y.max() >= own.classes:
        raise BadMessage("public samples of other classes")
    return NodeFederationWithPublic(own, 0, 0, Samples(torch.from_numpy(x), torch.from_numpy(y)))


def _turn_of(header: Mapping[str, Any]) -> PlannedHop:
    values = header.get("hop")
    if not isinstance(values, list) or len(values) != 5:
        raise BadMessage("no hop")
    hop = Hop(*(whole({"hop": value}, "hop") for value in values))
    tamper = header.get("tamper")
    if tamper is None:
        return PlannedHop(hop)
    if not isinstance(tamper, Mapping) or tamper.get("what") not in get_args(Tampering):
        raise BadMessage("an unknown way to tamper")
    return PlannedHop(hop, (), Tamper(hop.route, hop.index, tamper["what"], number(tamper, "factor")))


def _parts(header: Mapping[str, Any]) -> list[int]:
    """The turns of which a state is put together: none, or what they set out from and at least one more."""
    parts = header.get("parts", [])
    if not isinstance(parts, list) or len(parts) == 1 or len(parts) > MOST_PARTS:
        raise BadMessage("parts of which nothing can be put together")
    return [whole({"parts": part}, "parts") for part in parts]


def _drawn_once(path: Path) -> bytes:
    """Random bytes of this node's own, drawn once."""
    from secrets import token_bytes

    from fedrelay.engines.flower.identity import write_private

    if not path.is_file():
        write_private(path, token_bytes(32))
    drawn = path.read_bytes()
    if len(drawn) != 32:
        raise EngineError(f"{path}: is damaged; remove it, and another one is drawn")
    return drawn
