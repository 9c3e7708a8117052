"""The life of a node: come in, answer, stay; after a failure of the network or of the SuperLink come in again."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from fedrelay.engines.flower.identity import authority as certificate_of
from fedrelay.engines.flower.identity import private_key
from fedrelay.engines.flower.messages import Message, one_line
from fedrelay.engines.flower.node.service import NodeService
from fedrelay.engines.flower.wire import (
    LARGEST,
    Letter,
    NodeClient,
    RegistrationRefused,
    UnknownNode,
    UnreadableMessage,
    from_flower,
    reason_of,
)
from fedrelay.errors import EngineError, FedRelayError

log = logging.getLogger(__name__)

SHORTEST, LONGEST = 0.15, 0.5
"""Seconds between two looks for a question: longer and longer while none comes."""

ATTEMPTS = 4
"""How often a node asks to be let in."""

PAUSE = 1.0
"""Seconds before trying again after something went wrong."""


def serve(
    service: NodeService,
    superlink: str,
    authority: Path,
    key: Path,
    folder: Path,
    *,
    over: threading.Event,
    patience: float,
    say: Callable[[str], None],
    largest: int = LARGEST,
) -> None:
    """Answer questions until `over` is set; a SuperLink that cannot be reached for so many seconds ends it.

    A message of more than `largest` bytes is refused.
    """
    trusted, own = certificate_of(authority), private_key(key)
    door = NodeClient(superlink, trusted, own, folder / "node-id", largest)
    with _alone(folder):
        _stay(door, service, superlink, authority, over=over, patience=patience, say=say)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a node's folder: two processes that answer under one key would contradict each other."""
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise EngineError(f"{folder}: another process of this node is running") from None
    finally:
        os.close(handle)


def _stay(
    door: NodeClient,
    service: NodeService,
    superlink: str,
    authority: Path,
    *,
    over: threading.Event,
    patience: float,
    say: Callable[[str], None],
) -> None:
    try:
        while not over.is_set():
            try:
                _enter(door, over)
                say(f"connected to {superlink}: ready")
                _answer_all(door, service, over, say)
            except httpx.HTTPError as error:
                _check_certificate(error, superlink, authority)
                if time.monotonic() - door.reached > patience:
                    raise EngineError(f"the SuperLink at {superlink} cannot be reached ({reason_of(error)})") from None
                log.warning("the SuperLink at %s cannot be reached; trying again", superlink)
                over.wait(PAUSE)
            except (
                UnknownNode,
                RegistrationRefused,
            ):  # it was started anew; whether it lets us in shows when we come in
                over.wait(PAUSE)
    finally:
        door.leave()


def _enter(door: NodeClient, over: threading.Event) -> None:
    """Come in; a SuperLink that was just started may not know the key for a moment."""
    for attempt in range(ATTEMPTS):
        try:
            return door.enter()
        except (RegistrationRefused, UnknownNode) as error:
            if attempt == ATTEMPTS - 1 or over.wait(2 * PAUSE):
                raise EngineError(f"the SuperLink does not let this node in ({error}): {_why(error)}") from None
    return None


def _why(error: RegistrationRefused | UnknownNode) -> str:
    """What to do about a door that stays shut."""
    if isinstance(error, UnknownNode):
        return "it does not accept the signature; do the clocks agree to some seconds, and is it the right address?"
    return (
        "its public key is not registered, or another node with the same key is there; put the .pub file into the "
        "server's folder 'nodes'"
    )


def _answer_all(door: NodeClient, service: NodeService, over: threading.Event, say: Callable[[str], None]) -> None:
    pause = SHORTEST
    while not over.is_set():
        try:
            message = door.receive()
            if message is None:
                over.wait(pause)
                pause = min(LONGEST, pause * 1.05)
                continue
            answer = _answered(service, message)
        except UnreadableMessage as error:
            message, answer = error.message, str(error)
        pause = SHORTEST
        if isinstance(answer, str):
            say(f"a question could not be answered: {answer}")
        door.reply(message, answer)


def _answered(service: NodeService, message: Letter) -> Message | str:
    """The answer, or why there is none: whatever is asked, the node stays."""
    try:
        return service.answer(from_flower(message))
    except FedRelayError as error:
        return one_line(str(error))
    except Exception as error:
        return one_line(f"{type(error).__name__}: {error}")


def _check_certificate(error: httpx.HTTPError, superlink: str, authority: Path) -> None:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        raise EngineError(
            f"{superlink} shows a certificate that {authority} does not vouch for ({one_line(str(error), 120)}); "
            "nothing was sent"
        ) from None
