"""Calls to a SuperLink: clients of its interfaces, what their errors mean, and the list of nodes."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import httpx
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, UnregisterNodeRequest
from flwr.supercore.constant import NodeStatus
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext

from fedrelay.engines.flower.credentials import PublicKey
from fedrelay.engines.flower.printable_text import one_line
from fedrelay.engines.flower.server.connection_interface import SuperLinkUnreachable
from fedrelay.engines.flower.wire.answer_limits import AnswerLimitHttpInterceptor, AnswerRefused, limit_answers
from fedrelay.engines.flower.wire.clock_difference import ClockHttpInterceptor, clock_disagreement
from fedrelay.engines.flower.wire.message_interceptors import AnnouncementHttpInterceptor, DeliveryHttpInterceptor
from fedrelay.engines.flower.wire.superlink_process.control_token import control_token

UNREGISTERED = NodeStatus.UNREGISTERED
"""The status of a key that was removed. Flower never accepts it again."""

LOST_RUN = "no longer knows this run"
"""What status 401 means to a run."""

WRONG_SECRET = "does not accept the secret of the folder"
"""What status 401 of the Control interface means."""

T = TypeVar("T")


class ControlTokenHttpInterceptor:
    """Adds the token of the Control interface to requests."""

    def __init__(self, secret: bytes) -> None:
        self.header = f"Bearer {control_token(secret)}"

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        context.request.headers["authorization"] = self.header
        return call_next(context)


def client(kind: type[T], address: str, authority: bytes, component: str, *more: Any) -> T:
    """A client of one of the SuperLink's interfaces; it does not retry, and refuses answers that are too long."""
    version = RuntimeVersionHttpInterceptor(component_name=component)
    ours = (
        AnnouncementHttpInterceptor(),
        DeliveryHttpInterceptor(),
        AnswerLimitHttpInterceptor(),
        ClockHttpInterceptor(),
    )
    made: Any = kind.from_server_address(  # type: ignore[attr-defined]
        server_address=address, insecure=False, root_certificates=authority, interceptors=[version, *ours, *more]
    )
    limit_answers(made._client)
    return cast(T, made)


def control(address: str, authority: bytes, secret: bytes) -> ControlHttpClient:
    """A client of the interface that starts runs and lists nodes."""
    return client(ControlHttpClient, address, authority, "flwr-cli", ControlTokenHttpInterceptor(secret))


def status_of(error: Exception) -> int:
    """The HTTP status of a failed call; 0 if there was no response."""
    return error.response.status_code if isinstance(error, httpx.HTTPStatusError) else 0


def reason_of(error: Exception) -> str:
    """Why a call failed, in one line."""
    if isinstance(error, AnswerRefused):
        return str(error)
    if isinstance(error, httpx.HTTPStatusError):
        said = one_line(f"status {error.response.status_code}: {error.response.text}", 200)
        disagreement = clock_disagreement(error.response)
        return f"{disagreement}; {said}" if disagreement else said
    return one_line(f"{type(error).__name__}: {error}", 200)


def failure_of(address: str, error: Exception, unauthorized: str = LOST_RUN) -> str:
    """Which call failed and why; `unauthorized` is what status 401 means."""
    match status_of(error):
        case _ if isinstance(error, httpx.HTTPStatusError) and clock_disagreement(error.response):
            what = "does not accept our requests"
        case 0:
            what = "sends what it must not" if isinstance(error, AnswerRefused) else "cannot be reached"
        case 401:
            what = unauthorized
        case status if status < 500:
            what = "refuses the request"
        case _:
            what = "fails"
    return f"the SuperLink at {address} {what} ({reason_of(error)})"


def unreachable(address: str, error: Exception, unauthorized: str = LOST_RUN) -> SuperLinkUnreachable:
    """A failed call as one of our errors; `unauthorized` is what status 401 means."""
    return SuperLinkUnreachable(failure_of(address, error, unauthorized))


@contextmanager
def calling(address: str, unauthorized: str = LOST_RUN) -> Iterator[None]:
    """Turn errors of calls into `SuperLinkUnreachable`; `unauthorized` is what status 401 means."""
    try:
        yield
    except (httpx.HTTPError, ObjectPushError, ValueError) as error:
        raise unreachable(address, error, unauthorized) from None


def answers_strangers(address: str, authority: bytes) -> bool:
    """Whether the Control interface answers a request without a token."""
    with calling(address), client(ControlHttpClient, address, authority, "flwr-cli") as api:
        try:
            api.ListNodes(ListNodesRequest())
        except httpx.HTTPStatusError as error:
            if status_of(error) == 401:
                return False
            raise
    return True


def admit(address: str, authority: bytes, secret: bytes, keys: Mapping[str, PublicKey]) -> tuple[set[str], int]:
    """Register these nodes at a SuperLink and remove all others.

    Returns the names whose keys it does not accept, because they were removed before, and how many it removed now.
    """
    wanted = {public_key_to_bytes(key): name for name, key in keys.items()}
    with calling(address, WRONG_SECRET), control(address, authority, secret) as api:
        nodes = api.ListNodes(ListNodesRequest()).nodes_info
        refused = {
            wanted[each.public_key] for each in nodes if each.status == UNREGISTERED and each.public_key in wanted
        }
        unwanted = [each for each in nodes if each.status != UNREGISTERED and each.public_key not in wanted]
        for node in unwanted:
            api.UnregisterNode(UnregisterNodeRequest(node_id=node.node_id))
        for key in wanted.keys() - {node.public_key for node in nodes}:
            api.RegisterNode(RegisterNodeRequest(public_key=key))
    return refused, len(unwanted)


def listens(address: str, authority: bytes) -> bool:
    """Whether a SuperLink listens there, with a certificate of this authority."""
    context = ssl.create_default_context(cadata=authority.decode())
    try:
        with httpx.stream("GET", f"https://{address}/", verify=context, timeout=2.0):
            return True
    except httpx.HTTPError:
        return False


def last_seen(address: str, authority: bytes, secret: bytes, keys: Mapping[str, PublicKey]) -> dict[str, float]:
    """Name → seconds since the last heartbeat, for nodes that were ever online."""
    names = {public_key_to_bytes(key): name for name, key in keys.items()}
    with calling(address, WRONG_SECRET), control(address, authority, secret) as api:
        nodes = api.ListNodes(ListNodesRequest()).nodes_info
    seen = {names[node.public_key]: node for node in nodes if node.public_key in names and node.online_until}
    # A heartbeat is good for two intervals.
    return {name: time.time() - (node.online_until - 2 * node.heartbeat_interval) for name, node in seen.items()}
