"""The process of a node: register, answer requests, and register again after a failure of the network or SuperLink."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx

from fedrelay.engines.flower.messages import FAILED, one_line, text_field
from fedrelay.engines.flower.node.service import NodeService
from fedrelay.engines.flower.wire.node_side_connection import (
    NodeNotRecognized,
    NodeSideConnection,
    RegistrationRefused,
    UnreadableRequest,
)
from fedrelay.engines.flower.wire.superlink_calls import reason_of
from fedrelay.errors import EngineError

log = logging.getLogger(__name__)

SHORTEST, LONGEST = 0.15, 0.5
"""Seconds between two polls for a request; the interval grows while none comes."""

ATTEMPTS = 4
"""How often a node tries to register for the first time: a SuperLink that has just started may not know its key yet."""

PAUSE = 1.0
"""Seconds before a new attempt after a failure."""

RETRY = 2
"""Pauses before a new attempt after a refusal."""

ADVICE = {
    NodeNotRecognized: "the signature is not accepted; do the clocks agree to a few seconds, and is the address right?",
    RegistrationRefused: "its public key is not registered, or another node with the same key is online; put the .pub "
    "file into the server's folder 'nodes'",
}


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the node's folder: two processes with one key would contradict each other."""
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise EngineError(f"{folder}: another process of this node is running") from None
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
    with _locked(folder), closing(client):
        while not over.is_set():
            try:
                if not _register(client, over, seconds):
                    break
                seconds = patience  # it is known here; if it is shut out, that may be a mistake or an attack
                say(f"connected to {superlink}: ready")
                _answer_requests(client, service, over, say)
            except httpx.HTTPError as error:
                if "CERTIFICATE_VERIFY_FAILED" in str(error):
                    raise EngineError(
                        f"{superlink} has a certificate that {authority} did not sign "
                        f"({one_line(str(error), 120)}); nothing was sent"
                    ) from None
                if time.monotonic() - client.last_contact > patience:
                    raise EngineError(f"the SuperLink at {superlink} cannot be reached ({reason_of(error)})") from None
                log.warning("the SuperLink at %s cannot be reached; trying again", superlink)
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


def _answer_requests(
    client: NodeSideConnection, service: NodeService, over: threading.Event, say: Callable[[str], None]
) -> None:
    pause = SHORTEST
    while not over.is_set():
        if (found := client.receive()) is None:
            over.wait(pause)
            pause = min(LONGEST, pause * 1.05)
            continue
        pause = SHORTEST
        message, request = found
        reply = request if isinstance(request, UnreadableRequest) else service.respond(request)
        if isinstance(reply, UnreadableRequest):  # it has no digest that could be signed
            say(f"a request was not answered: {reply.reason}")
        elif reply.header.get("kind") == FAILED:
            say(f"a request was not answered: {text_field(reply.header, 'reason')}")
        client.reply(message, reply)
