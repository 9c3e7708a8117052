"""The node service: a request in, a reply out. It knows nothing of networks."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from fedrelay.data.evaluation_samples import EvaluationSet, evaluation_samples
from fedrelay.data.federation import Federation
from fedrelay.data.federation_wrapper import find_wrapper
from fedrelay.data.node_samples import MAX_CLASSES
from fedrelay.data.samples import Samples, SampleSource
from fedrelay.data.validation_samples import FederationWithValidationSamples, with_validation
from fedrelay.engines.flower.audit_entries import AuditEntry, Statement
from fedrelay.engines.flower.job_description import encoding_from_plain, job_from_description
from fedrelay.engines.flower.messages import (
    AUDIT,
    ENVELOPE,
    FAILED,
    FINE_TUNE,
    FROZEN,
    NONCE,
    SEALED,
    BadMessage,
    Header,
    Message,
    ModelEncoding,
    evaluation_and_fine_tuned_message,
    evaluation_message,
    float_field,
    int_field,
    pack_models,
    scalar_names,
    text_field,
    unpack_models,
)
from fedrelay.engines.flower.node.audit_journal import AuditJournal
from fedrelay.engines.flower.node.client_state_files import DAYS, ClientStateFiles, checked_run_id
from fedrelay.engines.flower.node.frozen_parameter_files import FrozenParameterFiles, MissingFrozenParameters
from fedrelay.engines.flower.node.hop_checkpoints import (
    SAVE_AS_NEEDED,
    UNFINISHED,
    CheckpointRule,
    HopCheckpoint,
    read_checkpoint,
)
from fedrelay.engines.flower.node.node_federation import NodeFederation, NodeFederationWithPublicSamples
from fedrelay.engines.flower.node.node_table import NodeTable
from fedrelay.engines.flower.node.noisy_histogram import noisy_histogram
from fedrelay.engines.flower.node.outbox import Outbox
from fedrelay.engines.flower.node.owner_privacy_policy import DeclinedByOwner, OwnerPrivacyPolicy, PrivacyBudget
from fedrelay.engines.flower.node.reply_cache import ReplyCache, digest
from fedrelay.engines.flower.node_facts import InputFacts, NodeFacts, TableFacts, describe_inputs
from fedrelay.engines.flower.printable_text import one_line
from fedrelay.engines.local.executor import WorkerContext, one_thread
from fedrelay.engines.local.route_batches import RouteBatch
from fedrelay.engines.local.simulation_engine import SETUP_ROUND, ProfileClients
from fedrelay.errors import DataError, EngineError, FedRelayError, SpecError
from fedrelay.experiment.method_catalogue import import_built_in_parts
from fedrelay.experiment.part_serialization import from_plain
from fedrelay.experiment.spec import GuardSettings
from fedrelay.local.client_evaluation import ClientEvaluationSettings
from fedrelay.local.client_profiler import ClientProfiler
from fedrelay.local.evaluation import evaluate
from fedrelay.local.hop_context import HopContext
from fedrelay.local.hop_runner import HopInstructions
from fedrelay.local.hop_watcher import HopProgress
from fedrelay.local.state_until_merge import state_after_merges, with_merge_number
from fedrelay.local.terms.client_level_privacy import ClientLevelPrivacy
from fedrelay.local.terms.tensor_declarations import ClientState, Payload, ServerState
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import weights_sha256
from fedrelay.models.nested_inputs import Inputs, named_tensors, single_shape, with_tensors
from fedrelay.robustness.guard import TypicalHop
from fedrelay.routes.execution_overlay import TamperedHop, Tampering
from fedrelay.routes.plan import Hop
from fedrelay.runtime.versions import __version__
from fedrelay.utc_time import utc_now

if TYPE_CHECKING:  # cryptography is installed with Flower only
    from fedrelay.engines.flower.credentials import PublicKey
    from fedrelay.engines.flower.node.sealed_hops import SealedHops
    from fedrelay.engines.flower.request_signatures import RequestVerifier
    from fedrelay.engines.flower.sealing import NodeIdentity

LARGEST_MODEL = 2 * 10**9
"""Bytes of the largest model that is built."""

PREPARED_JOBS = 3
"""Jobs that are kept ready: that of the rounds, and those of profiles."""

HIDDEN_DATA_ERROR = "the request does not fit the data of this node; the node's log has the details"
HIDDEN_ERROR = "an error at this node; the node's log has the details"
"""What the server reads of errors whose text may quote samples. The server chooses what a node computes with them."""

NO_ROSTER = "this node has no roster, so it cannot take part in sealed routes; start it with --roster"

MOST_FINE_TUNING = 10_000
"""Steps of fine-tuning that a server may ask for."""

MOST_MERGED = 10_000
"""Hops of one client that a version of its state may merge."""

log = logging.getLogger(__name__)


def _ignore(progress: HopProgress) -> None:
    pass


@dataclass
class NodeService:
    """Answers the requests of a server."""

    data: Federation
    folder: Path
    """Where the node keeps client state, replies, frozen parameters and its salt."""

    _: KW_ONLY
    table: NodeTable | None = None
    """The table that `data` is from, if the server decides how its rows are encoded."""

    module: nn.Module | None = None
    """A model of the owner's, for runs whose model is not in the zoo."""

    device: str = "cpu"
    validation: float = 0.0
    """Share of the train samples that is kept for choosing a model."""

    share_histogram: bool = False
    """Whether the server may know how many samples of each class there are."""

    histogram_epsilon: float | None = None
    """With `share_histogram`: the privacy of the numbers, by noise; None: exact numbers."""

    share_evaluation: bool = False
    """With a roster: whether the server may have models of its choice evaluated on samples that are kept for that."""

    min_evaluated: int = 1
    """Models are evaluated on at least this many samples, or not at all."""

    policy: OwnerPrivacyPolicy | None = None
    budget: PrivacyBudget | None = None
    keep_days: int = DAYS
    """Days after which the state of a run that did not continue is removed."""

    largest_model: int = LARGEST_MODEL
    plugins: tuple[str, ...] = ()
    """Names of the plug-in modules that the owner allows."""

    identity: NodeIdentity | None = None
    """The keys of the node; None: replies are not signed."""

    requests: RequestVerifier | None = None
    """Checks that requests are the server's own; None: all are answered."""

    checkpoints: CheckpointRule = SAVE_AS_NEEDED
    """When a hop is saved while it is trained."""

    say: Callable[[str], None] = log.debug
    """Shows a line to the owner."""

    on_step: Callable[[HopProgress], None] = _ignore
    """Is told of every step of a hop."""

    roster: Mapping[str, PublicKey] = field(default_factory=dict)
    """The keys of all nodes, if the owner has pinned a roster: then the node takes part in sealed routes only."""

    def __post_init__(self) -> None:
        import_built_in_parts()  # requests may name any of their terms and profilers
        if self.histogram_epsilon is not None:
            self._check_noise_of_histogram()
        self.state_files = ClientStateFiles(self.folder / "states", self.keep_days)
        self.replies = ReplyCache(self.state_files)
        self.journal = AuditJournal(self.folder / "audit")
        self.sealed = self._sealed_hops()
        self.frozen_files = FrozenParameterFiles(self.folder / "frozen", self.largest_model)
        self.salt = _salt(self.folder / "salt")
        self.unfinished: Path | None = None
        """Where the hop of the last reply was saved, until the reply has left."""
        self.contexts: OrderedDict[str, WorkerContext] = OrderedDict()
        self.federation = with_validation(self.data, self.validation, seed=1)
        self.encoded: tuple[str, Federation] | None = None

    def respond(self, request: Message) -> Message:
        """The reply to a request, or why there is none, signed by the node."""
        try:
            if self.requests is not None:
                self.requests.check(request, self._has_begun)
        except FedRelayError as error:
            return self._signed(request, _failure(error))  # not for the audit trail: the server has not asked
        try:
            reply = self.answer(request)
        except FedRelayError as error:
            reply = _failure(error)
        if request.header.get("kind") != "hop" or self.identity is None:
            return self._signed(request, reply)
        try:
            signed = self._signed(request, self._with_statement(request, reply))
            self.journal.append(text_field(request.header, "run"), AuditEntry.of(signed))
            return signed
        except FedRelayError as error:  # a hop that cannot be accounted for does not leave
            return self._signed(request, reply if reply.header["kind"] == FAILED else _failure(error))

    def _signed(self, request: Message, reply: Message) -> Message:
        if self.identity is None:
            return reply
        from fedrelay.engines.flower.reply_signatures import signed_reply

        return signed_reply(self.identity.key, request, reply)

    def _with_statement(self, request: Message, reply: Message) -> Message:
        """The reply to a hop with what the node states for the audit trail, and entries that the server has not."""
        header, known = request.header, request.header.get(AUDIT)
        run, hop = text_field(header, "run"), _hop_instructions(header).hop
        known = known if isinstance(known, Mapping) else {}
        link = self.journal.next_link(run, known)
        place = (hop.round, hop.attempt, hop.route, hop.index)
        digests = {"model_in": "", "model_out": "", **reply.header.get(AUDIT, {})}
        statement = Statement(utc_now(), run, *place, *link, text_field(known, "head"), **digests)
        earlier = self.journal.after(run, int_field(known, "number")) if known else []
        arrays = dict(reply.arrays)
        if earlier:
            arrays[AUDIT] = np.frombuffer(json.dumps([each.plain() for each in earlier]).encode(), np.uint8)
        return Message({**reply.header, AUDIT: statement._asdict()}, arrays)

    def answer(self, request: Message) -> Message:
        """Answer a request. Raises nothing but `BadMessage` and `EngineError`, whose text has one line."""
        try:
            match request.header.get("kind"):
                case "describe":
                    return Message(self.facts().model_dump(mode="json"))
                case "setup":
                    return self._setup(request)
                case "hop":
                    return self._hop(request) if self.sealed is None else self._sealed_hop(request, self.sealed)
                case "reseal":
                    return self._seal_again(request)
                case "profile":
                    return self._profile(request)
                case "evaluate":
                    return self._evaluate(request)
            raise BadMessage("unknown kind of request")
        except MissingFrozenParameters:
            return Message({"kind": "setup", "missing": True})
        except (BadMessage, DeclinedByOwner):
            raise
        except Exception as error:
            self.contexts.clear()  # one of them may have stopped in the middle of a step
            raise EngineError(_reason_for_server(error)) from None

    def facts(self) -> NodeFacts:
        """What the server may know about this node."""
        data, kept = self.federation, find_wrapper(self.federation, FederationWithValidationSamples)
        evaluates = self.policy is None and (self.sealed is None or self.share_evaluation)
        # The salt keeps others from checking whether this node holds data that they have too.
        fingerprint = hashlib.sha256(self.salt + data.fingerprint().encode()).hexdigest()
        return NodeFacts(
            samples=data.sample_count(0),
            tests=self._evaluated(data.test.size) if evaluates else 0,
            validations=self._evaluated(int(kept.reserved_counts.sum())) if kept is not None and evaluates else 0,
            classes=data.class_count,
            shape=single_shape(data.sample_shape) or (),
            kind=data.kind,
            inputs=self._input_facts(),
            target_shape=data.target_shape,
            task=data.task,
            fingerprint=fingerprint,
            histogram=self._shared_histogram(),
            histogram_epsilon=self.histogram_epsilon,
            table=self._table_facts(),
            version=__version__,
            plugins=self.plugins,
            least_noise=None if self.policy is None else self.policy.noise,
            sealing=None if self.sealed is None else self.sealed.identity.certificate(),
        )

    def _check_noise_of_histogram(self) -> None:
        """Refuse noise that would protect less than it says."""
        problems = {
            "needs a histogram that is shared": not self.share_histogram,
            "validation samples are chosen by label, so one label changes several counts": bool(self.validation),
            "a table shares its labels and sums without noise": self.table is not None,
            "is the privacy of one label; these samples have several": bool(self.data.target_shape),
        }
        if found := [text for text, holds in problems.items() if holds]:
            raise SpecError(f"histogram_epsilon: {found[0]}")

    def _shared_histogram(self) -> tuple[int, ...] | None:
        if not self.share_histogram:
            return None
        counts = self.federation.histogram(0)
        if self.histogram_epsilon is not None:
            return noisy_histogram(self.folder, counts, self.histogram_epsilon)
        return tuple(counts.tolist())

    def _evaluated(self, samples: int) -> int:
        """So many samples, if the owner lets models be evaluated on no more than that."""
        return samples if samples >= self.min_evaluated else 0

    def _input_facts(self) -> tuple[InputFacts, ...]:
        try:
            return describe_inputs(_first_inputs(self.data))
        except ValidationError as error:
            raise DataError(one_line(f"inputs cannot be described to the server: {error.errors()[0]['msg']}")) from None

    def _table_facts(self) -> TableFacts | None:
        if self.table is None:
            return None
        names = {"target": self.table.target, "labels": self.table.labels, "task": self.table.task}
        try:
            return TableFacts.model_validate({**names, "statistics": self.table.statistics})
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            problem = f"{place}: {first['msg']}" if place else first["msg"]
            raise DataError(one_line(f"{self.table.table.source}: cannot be shared: {problem}")) from None

    def _setup(self, request: Message) -> Message:
        """Keep the model's frozen parameters if they are sent, and say whether they are missing."""
        digest = text_field(request.header, FROZEN)
        if FROZEN in request.arrays:
            self.frozen_files.put(digest, request.arrays[FROZEN])
        return Message({"kind": "setup", "missing": not self.frozen_files.has(digest)})

    def _sealed_hops(self) -> SealedHops | None:
        if not self.roster or self.identity is None:
            return None
        from fedrelay.engines.flower.node.sealed_hops import SealedHops

        own = self.identity.key.public_key()
        [name] = (name for name, key in self.roster.items() if key == own)
        return SealedHops(name, self.identity, self.roster, Outbox(self.state_files))

    def _sealed_hop(self, request: Message, sealed: SealedHops) -> Message:
        began, header = time.monotonic(), request.header
        if SEALED not in header:
            raise DeclinedByOwner("this node takes part in sealed routes only (--roster); set route.handover=sealed")
        worker = self._context(header)
        place = sealed.place(header, _hop_instructions(header).hop, worker.job)
        received = sealed.receive(request, place, worker)
        if received.problem:
            fields = {"kind": "hop", "request": int_field(header, "request"), "refused_received": received.problem}
            return Message({**fields, "seconds": time.monotonic() - began})
        sealed.accept(received, self._hop_context(received.request, worker.job), worker.job)
        trained = self._hop(received.request)
        return _with_digests_of_envelopes(request, trained, sealed.hand_on(received, trained))

    def _seal_again(self, request: Message) -> Message:
        if self.sealed is None:
            raise EngineError(NO_ROSTER)
        header = request.header
        job = self._context(header).job
        return self.sealed.seal_again(self.sealed.place(header, _hop_instructions(header).hop, job))

    def _hop(self, request: Message) -> Message:
        if SEALED in request.header:
            raise EngineError(NO_ROSTER)
        began, header = time.monotonic(), request.header
        run, id = text_field(header, "run"), int_field(header, "request")
        self.state_files.remove_before(run, int_field(header, "oldest_needed"))
        worker, hop = self._context(header), _hop_instructions(header)
        if self.policy is not None:
            self.policy.check(worker.job)
        noisy = any(isinstance(term, ClientLevelPrivacy) for term in worker.job.terms)
        checkpoint = self._checkpoint(request, hop.hop)
        key = digest(request) if noisy else checkpoint.request
        if (given := self.replies.get(run, key)) is not None:
            return self._repeat(given, run, id, began)
        context, typical = self._hop_context(request, worker.job), TypicalHop(float_field(header, "typical_norm"))
        if self.budget is not None:
            self.budget.charge(checkpoint.request)
        try:
            reply = self._train(header, worker, hop, context, typical, checkpoint, began)
            if noisy:  # before the reply leaves: a reply that is lost must not be drawn again
                self.replies.put(run, key, reply)
            elif checkpoint.saved:  # nor must the work of a long hop be done again
                self.replies.put(run, key, reply, most=1)
            return reply
        finally:  # what failed is charged anew; what was killed never gets here
            if self.budget is not None:
                self.budget.settle()

    def _checkpoint(self, request: Message, hop: Hop) -> HopCheckpoint:
        """The checkpoint of a hop. It also depends on the samples and the machine, so that the bits are the same."""
        path = self.state_files.run_folder(text_field(request.header, "run")) / UNFINISHED
        fields = [digest(request), self._data_fingerprint, self.device, torch.__version__, __version__]
        key = hashlib.sha256(json.dumps(fields).encode()).hexdigest()
        place = f"round {hop.round}, route {hop.route}, hop {hop.index}"
        self.unfinished = path
        nonce = text_field(request.header, NONCE)
        return HopCheckpoint(path, key, nonce, place, self.checkpoints, self.say, self.on_step)

    @cached_property
    def _data_fingerprint(self) -> str:
        return self.federation.fingerprint()

    def replied(self) -> None:
        """The last reply has left: the hop need not be continued any more."""
        if self.unfinished is not None:
            self.unfinished.unlink(missing_ok=True)
            self.unfinished = None

    def _has_begun(self, request: Message) -> bool:
        """Whether this node was training for this very request before it was interrupted."""
        if request.header.get("kind") != "hop":
            return False
        folder = self.state_files.folder / checked_run_id(text_field(request.header, "run"))
        found = read_checkpoint(folder / UNFINISHED)
        return found is not None and found["nonce"] == text_field(request.header, NONCE)

    def _train(
        self,
        header: Header,
        worker: WorkerContext,
        hop: HopInstructions,
        context: HopContext,
        typical: TypicalHop,
        checkpoint: HopCheckpoint,
        began: float,
    ) -> Message:
        """Train a hop, or the rest of it, and keep the client state."""
        run, id = text_field(header, "run"), int_field(header, "request")
        model = torch.empty_like(context.received)
        with one_thread():
            [report] = worker.hop_runner.run([hop], [context], [model], typical, checkpoint)
        fields: dict[str, Any] = {
            "kind": "hop",
            "request": id,
            "samples": report.samples,
            "steps": report.steps,
            "loss": report.loss if self.policy is None else None,
            "length": report.update_norm,
            "shortened": report.update_clipped,
            "seconds": time.monotonic() - began,
            AUDIT: {"model_in": weights_sha256(context.received), "model_out": weights_sha256(model)},
        }
        if report.refused:
            fields[AUDIT]["model_out"] = ""
            reply = Message({**fields, "refused": report.refused})
        else:
            if context.new_client_state:
                until_merge, merges = worker.job.states_until_merge, int_field(header, "merges")
                self.state_files.put(run, id, with_merge_number(context.new_client_state, until_merge, merges))
            payload = {f"payload {name}": each for name, each in context.payload.items()}
            encoding = ModelEncoding.of_reply(worker.job.codec, context.received)
            reply = pack_models(fields, {"model": model} | payload, scalar_names(worker.job), encoding)
        return reply

    def _repeat(self, given: Message, run: str, id: int, began: float) -> Message:
        """The reply that an identical request got before, with the id and the seconds of this request."""
        before = int_field(given.header, "request")
        if before != id and self.state_files.has(run, before):
            self.state_files.put(run, id, self.state_files.get(run, before, (), ()))
        audit = {**given.header.get(AUDIT, {}), "repeated": True}
        return Message({**given.header, "request": id, "seconds": time.monotonic() - began, AUDIT: audit}, given.arrays)

    def _hop_context(self, request: Message, job: TrainingJob) -> HopContext:
        """The tensors of a hop. What was not sent, or not stored yet, is zero."""
        header, encoding = request.header, ModelEncoding.of_request(job.codec)
        models = unpack_models(request, job.layout, scalars=scalar_names(job), encoding=encoding)
        if "recv" not in models:
            raise BadMessage("it has no model to train")
        recv = models["recv"]

        def sent(kind: str, sizes: Mapping[str, int]) -> dict[str, Tensor]:
            return {name: models.get(f"{kind} {name}", recv.new_zeros(size)) for name, size in sizes.items()}

        sizes = job.tensor_sizes(ClientState)
        state: Mapping[str, Tensor] = {}
        if sizes:
            found = self.state_files.get(
                text_field(header, "run"), int_field(header, "state"), _merged_from(header), job.additive_state
            )
            found = state_after_merges(found, job.states_until_merge, int_field(header, "merges"))
            state = {name: found.get(name, recv.new_zeros(size)) for name, size in sizes.items()}
            if any(each.shape != (sizes[name],) or each.dtype != recv.dtype for name, each in state.items()):
                raise EngineError("the state of this client belongs to another model")
        return HopContext(
            recv,
            models.get("round", recv) if job.needs_round_model else None,
            sent("server", job.tensor_sizes(ServerState)),
            state,
            {name: recv.new_zeros(size) for name, size in sizes.items()},
            sent("payload", job.tensor_sizes(Payload)),
        )

    def _profile(self, request: Message) -> Message:
        if self.policy is not None:
            raise self.policy.refusal("a profile")
        if self.sealed is not None:
            raise DeclinedByOwner(
                "a profile shows what is trained on this node's samples alone, and it takes part in "
                "sealed routes only (--roster); use grouping.assign=random"
            )
        worker, client = self._context(request.header), int_field(request.header, "client")
        profiler = from_plain(ClientProfiler, request.header.get("profiler"))
        own = worker.job.federation
        own = own.inner if isinstance(own, NodeFederationWithPublicSamples) else own
        worker.job = replace(worker.job, federation=_with_public(own, request))
        worker.rows = unpack_models(request, worker.job.layout, ["start"])["start"].unsqueeze(0)
        with one_thread():
            [(_, vector)] = ProfileClients(profiler, RouteBatch(SETUP_ROUND, ((0, (client,)),))).run(worker)
        return Message({"kind": "profile"}, {"vector": np.ascontiguousarray(vector)})

    def _evaluate(self, request: Message) -> Message:
        if self.policy is not None:
            raise self.policy.refusal("an evaluation")
        if self.sealed is not None and not self.share_evaluation:
            raise DeclinedByOwner(
                "an evaluation shows the server how a model of its choice does on this node's samples alone, and the "
                "node takes part in sealed routes only (--roster); its owner has not set --share-evaluation"
            )
        header = request.header
        worker, steps = self._context(header), int_field({FINE_TUNE: 0, **header}, FINE_TUNE, MOST_FINE_TUNING)
        if self.sealed is not None and steps:
            raise DeclinedByOwner(
                "an evaluation after fine-tuning shows what this node's samples alone change in a model, and the node "
                "takes part in sealed routes only (--roster); set eval.fine_tune=0"
            )
        samples = _evaluation_samples(worker.job.federation, header)
        if samples.size < self.min_evaluated:
            raise DeclinedByOwner(
                f"this node evaluates models on at least {self.min_evaluated} samples (--min-evaluated)"
            )
        model = unpack_models(request, worker.job.layout, ["model"])["model"]
        with one_thread():
            sums = evaluate(worker.hop_runner.flat_module, model, worker.job.task, samples)
            if not steps:
                return evaluation_message(sums)
            wanted = ClientEvaluationSettings(int_field(header, "round"), steps)
            [tuned] = worker.held_out_evaluator.fine_tuned([int_field(header, "client")], [model], wanted)
            after = evaluate(worker.hop_runner.flat_module, tuned, worker.job.task, samples)
        return evaluation_and_fine_tuned_message(sums, after)

    def _context(self, header: Header) -> WorkerContext:
        """The worker context of a job: one that is ready, or a new one."""
        description = str(header.get("job", ""))
        if description not in self.contexts:
            job = self._job(description)
            with one_thread():
                self.contexts[description] = WorkerContext(job, torch.empty(0))
            while len(self.contexts) > PREPARED_JOBS:
                self.contexts.popitem(last=False)
        self.contexts.move_to_end(description)
        return self.contexts[description]

    def _job(self, description: str) -> TrainingJob:
        try:
            fields = json.loads(description)
            classes, mean_size = int_field(fields, "classes", MAX_CLASSES), float_field(fields, "mean_size")
            if classes < self.data.class_count:
                raise EngineError(f"this node has labels of {self.data.class_count} classes, the job has {classes}")
            if mean_size <= 0:
                raise BadMessage("mean_size must be greater than 0")
            federation = NodeFederation(self._samples_as(fields.get("table")), classes, mean_size)
            job = job_from_description(
                description,
                federation,
                self.module,
                self.device,
                self.largest_model,
                self.frozen_files.get,
                self.plugins,
            )
            return job if self.sealed is None else _with_fixed_guard(job)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise BadMessage(f"the job cannot be read ({type(error).__name__})") from None

    def _samples_as(self, plain: Any) -> Federation:
        """The node's samples; the rows of a table as the server wants them encoded."""
        if self.table is None or plain is None:
            if self.table is not None or plain is not None:
                raise EngineError("the server and this node do not agree whether its samples are rows of a table")
            return self.federation
        key = json.dumps(plain)
        if self.encoded is None or self.encoded[0] != key:
            rows = self.table.encoded(encoding_from_plain(plain))
            self.encoded = key, with_validation(rows, self.validation, seed=1)
        return self.encoded[1]


def _failure(error: FedRelayError) -> Message:
    return Message({"kind": FAILED, "reason": one_line(str(error))})


def _with_digests_of_envelopes(request: Message, trained: Message, sent: Message) -> Message:
    """The reply of a sealed hop with digests of what the server sees: envelopes, and models in the clear.

    The digest of a model that it must not see would let it check guesses about the samples: it can compute the model
    that they would lead to.
    """
    digests = dict(trained.header[AUDIT])
    for name, message in (("model_in", request), ("model_out", sent)):
        if (envelope := message.arrays.get(ENVELOPE)) is not None:
            digests[name] = hashlib.sha256(envelope.tobytes()).hexdigest()
    if sent.header.get("refused"):
        digests["model_out"] = ""
    return Message({**sent.header, AUDIT: digests}, sent.arrays)


def _reason_for_server(error: Exception) -> str:
    """The text of an error if it is of FedRelay's own making; others may quote samples, and only the owner reads them.

    An error that names its cause quotes it.
    """
    if isinstance(error, FedRelayError) and not isinstance(error, DataError) and error.__cause__ is None:
        return one_line(str(error))
    log.warning("a request failed: %s", one_line(f"{type(error).__name__}: {error}"))
    return HIDDEN_DATA_ERROR if isinstance(error, DataError) else HIDDEN_ERROR


def _with_fixed_guard(job: TrainingJob) -> TrainingJob:
    """The job with the usual bounds of the guard: with its own, a server could ask how large a client's weights are."""
    return replace(job, guard=GuardSettings(norm=job.guard.norm, on_divergence="skip"))


def _evaluation_samples(own: Federation, header: Header) -> SampleSource:
    """The samples that a request wants a model to be evaluated on."""
    on: EvaluationSet = "validation" if header.get("on") == "validation" else "test"
    if on == "validation" and find_wrapper(own, FederationWithValidationSamples) is None:
        raise EngineError("this node keeps no validation samples; start it with --validation")
    samples = evaluation_samples(own, on)
    if not samples.size:
        raise EngineError("this node has no held-out samples to evaluate on; start it with --holdout")
    return samples


def _with_public(own: Federation, request: Message) -> Federation:
    """A node's federation with the public samples of a request, if it has any."""
    labels = request.arrays.get("public targets")
    if labels is None:
        return own
    y, first = torch.from_numpy(np.array(labels)), _first_inputs(own)
    if y.dim() != 1 or not len(y) or y.dtype != torch.int64:
        raise BadMessage("the public samples have another shape or type")
    if y.min() < 0 or y.max() >= own.class_count:
        raise BadMessage("the public samples have other classes")
    sent = []
    for name, like in named_tensors(first).items():
        array = request.arrays.get(f"public {name}")
        if array is None or array.shape != (len(y), *like.shape[1:]) or array.dtype != like.numpy().dtype:
            raise BadMessage("the public samples have another shape or type")
        sent.append(torch.from_numpy(np.array(array)))
    return NodeFederationWithPublicSamples(own, 0, 0, Samples(with_tensors(first, sent), y))


def _first_inputs(own: Federation) -> Inputs:
    """The inputs of a batch of one of the node's own samples."""
    return next(own.train_samples(0).pieces(range(1), 1, 0)).x


def _hop_instructions(header: Header) -> HopInstructions:
    values = header.get("hop")
    if not isinstance(values, list) or len(values) != 6:
        raise BadMessage("hop must be six numbers")
    hop = Hop(*(int_field({"hop": value}, "hop") for value in values))
    tamper = header.get("tamper")
    if tamper is None:
        return HopInstructions(hop)
    if not isinstance(tamper, Mapping) or tamper.get("what") not in get_args(Tampering):
        raise BadMessage("unknown kind of tampering")
    return HopInstructions(hop, (), TamperedHop(hop.route, hop.index, tamper["what"], float_field(tamper, "factor")))


def _merged_from(header: Header) -> list[int]:
    """The versions that a version of the state merges: none, or their common start and at least one hop."""
    versions = header.get("merged_from", [])
    if not isinstance(versions, list) or len(versions) == 1 or len(versions) > MOST_MERGED:
        raise BadMessage("merged_from must be empty, or have from two to 10000 versions")
    return [int_field({"merged_from": version}, "merged_from") for version in versions]


def _salt(path: Path) -> bytes:
    """Random bytes of this node's own, drawn once."""
    from fedrelay.engines.flower.credentials import write_private

    if not path.is_file():
        write_private(path, token_bytes(32))
    salt = path.read_bytes()
    if len(salt) != 32:
        raise EngineError(f"{path}: is damaged; remove it, and the node draws a new one")
    return salt
