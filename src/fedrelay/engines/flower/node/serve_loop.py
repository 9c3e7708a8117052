"""The process of a node: register, answer requests, and register again after a failure of the network or SuperLink."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
from flwr.app import Message as FlowerMessage

from fedrelay.engines.flower.messages import AUDIT, FAILED, Header, Message, text_field
from fedrelay.engines.flower.node.service import NodeService
from fedrelay.engines.flower.printable_text import one_line
from fedrelay.engines.flower.wire.node_side_connection import (
    ClocksDisagree,
    NodeNotRecognized,
    NodeSideConnection,
    RegistrationRefused,
    UnreadableRequest,
)
from fedrelay.engines.flower.wire.superlink_calls import failure_of, reason_of
from fedrelay.errors import EngineError
from fedrelay.file_lock import lock_file
from fedrelay.utc_time import utc_now

log = logging.getLogger(__name__)

LISTENING = 2.0
"""Seconds to wait until the SuperLink says that there is a request. A node that is to stop finishes waiting first."""

SHORTEST, LONGEST = 0.15, 0.5
"""Seconds between two polls for a request where the SuperLink does not say so; they grow while none comes."""

ATTEMPTS = 4
"""How often a node tries to register for the first time: a SuperLink that has just started may not know its key yet."""

PAUSE = 1.0
"""Seconds before a new attempt after a failure."""

RETRY = 2
"""Pauses before a new attempt after a refusal."""

ADVICE = {
    ClocksDisagree: "it does so as long as the clocks disagree",
    NodeNotRecognized: "the signature is not accepted; is the address right?",
    RegistrationRefused: "its public key is not registered, or another node with the same key is online; put the .pub "
    "file into the server's folder 'nodes'",
}


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the node's folder: two processes with one key would contradict each other."""
    try:
        handle = lock_file(folder / ".lock", mode=0o600)
    except BlockingIOError:
        raise EngineError(f"{folder}: another process of this node is running") from None
    try:
        yield
    finally:
        os.close(handle)


def serve(
    client: NodeSideConnection,
    service: NodeService,
    superlink: str,
    authority: Path,
    folder: Path,
    *,
    over: threading.Event,
    patience: float,
    say: Callable[[str], None],
) -> None:
    """Answer requests until `over` is set.

    Args:
        client: The connection to the SuperLink.
        service: Answers the requests.
        superlink: HOST:PORT of the SuperLink.
        authority: The certificate that the SuperLink's is checked with.
        folder: The node's folder.
        over: Set to end the process.
        patience: Seconds without a SuperLink after which the node gives up.
        say: Shows a line to the owner.
    """
    seconds = (ATTEMPTS - 1) * RETRY * PAUSE
    unsent = UnsentReply(client, service)
    with _locked(folder), closing(client):
        while not over.is_set():
            try:
                if not _register(client, over, seconds):
                    break
                seconds = patience  # it is known here; if it is shut out, that may be a mistake or an attack
                say(f"connected to {superlink}: ready")
                unsent.send_again()
                _answer_requests(client, service, over, say, unsent)
            except httpx.HTTPError as error:
                if "CERTIFICATE_VERIFY_FAILED" in str(error):
                    raise EngineError(
                        f"{superlink} has a certificate that {authority} did not sign "
                        f"({one_line(str(error), 120)}); nothing was sent"
                    ) from None
                if time.monotonic() - client.last_contact > patience:
                    raise EngineError(failure_of(superlink, error)) from None
                log.warning("%s; trying again", failure_of(superlink, error))
                over.wait(PAUSE)
            except (NodeNotRecognized, RegistrationRefused):
                # It was restarted; registering shows whether it accepts us.
                over.wait(PAUSE)


def _register(client: NodeSideConnection, over: threading.Event, seconds: float) -> bool:
    """Register; a refusal is final after `seconds`. Returns whether it succeeded before the process had to end."""
    first_refusal = None
    while not over.is_set():
        try:
            client.register()
            return True
        except (RegistrationRefused, NodeNotRecognized) as error:
            refusal = f"the SuperLink does not accept this node ({error}): {ADVICE[type(error)]}"
        if first_refusal is None:
            first_refusal = time.monotonic()
            log.warning("%s; trying again for %g s", refusal, seconds)
        if time.monotonic() - first_refusal >= seconds:
            raise EngineError(refusal)
        over.wait(RETRY * PAUSE)
    return False


class UnsentReply:
    """The last reply, until it has left: after a lost connection it is sent again instead of being lost."""

    def __init__(self, client: NodeSideConnection, service: NodeService) -> None:
        self.client, self.service = client, service
        self.last: tuple[FlowerMessage, Message] | None = None

    def send(self, request: FlowerMessage, reply: Message) -> None:
        """Send a reply. If that raises an error, `send_again` tries once more."""
        self.last = request, reply
        self.client.reply(request, reply)
        self.last = None
        self.service.replied()

    def send_again(self) -> None:
        """Send the reply that did not leave, if there is one and the SuperLink still takes it."""
        if self.last is not None:
            try:
                self.send(*self.last)
            except httpx.HTTPStatusError as error:
                log.warning("the SuperLink no longer takes a reply that was interrupted (%s)", reason_of(error))
                self.last = None


def _answer_requests(
    client: NodeSideConnection,
    service: NodeService,
    over: threading.Event,
    say: Callable[[str], None],
    unsent: UnsentReply,
) -> None:
    pause = SHORTEST
    while not over.is_set():
        if (found := client.next_request(LISTENING)) is None:
            if not client.requests.is_supported:
                over.wait(pause)
                pause = min(LONGEST, pause * 1.05)
            continue
        pause = SHORTEST
        message, request = found
        if isinstance(request, UnreadableRequest):  # it has no digest that could be signed
            say(f"{utc_now()} a request was not answered: {request.reason}")
            client.reply(message, request)
            continue
        reply = service.respond(request)
        say(f"{utc_now()} {what_was_done(request.header, reply.header)}")
        unsent.send(message, reply)


def what_was_done(request: Header, reply: Header) -> str:
    """What a node did with a request, for its log."""
    if reply.get("kind") == FAILED:
        return f"a request was not answered: {text_field(reply, 'reason')}"
    audit, seconds = reply.get(AUDIT), reply.get("seconds")
    took = f" in {seconds:.1f} s" if isinstance(seconds, float) else ""
    match reply.get("kind"):
        case "hop":
            place = f"entry {audit['number']}, " if isinstance(audit, dict) and "number" in audit else ""
            round, route, index = request["hop"][:3]
            where = f"{place}round {round}, route {route}, hop {index}"
            if problem := text_field(reply, "refused") or text_field(reply, "refused_received"):
                return f"{where}: refused ({problem})"
            if isinstance(audit, dict) and audit.get("repeated"):
                return f"{where}: sent the reply that it had given before"
            return f"{where}: trained on {reply['samples']:,} samples, {reply['steps']:,} steps{took}"
        case "evaluate":
            return f"evaluated a model of the server's on its {request.get('on', 'test')} samples"
        case "setup":
            return "looked for the frozen parameters of the model"
        case "profile":
            return "sent a profile of its samples"
        case "reseal":
            return "sealed its last model for another node"
    return "told the server what it has"
