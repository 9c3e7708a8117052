"""How a SuperLink is spoken to: clients of its interfaces, what their failures mean, and what anybody may ask of it."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, UnregisterNodeRequest
from flwr.supercore.constant import NodeStatus
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedrelay.engines.flower.messages import one_line
from fedrelay.engines.flower.server.connection import Unreachable

OUT = NodeStatus.UNREGISTERED
"""Flower's word for a key that was let in once and is not any more; it never takes it again."""

T = TypeVar("T")


def client(kind: type[T], address: str, authority: bytes, component: str, *more: Any) -> T:
    """A client of one of the SuperLink's interfaces; it never retries by itself."""
    interceptors = [RuntimeVersionHttpInterceptor(component_name=component), *more]
    made: T = kind.from_server_address(  # type: ignore[attr-defined]
        server_address=address, insecure=False, root_certificates=authority, interceptors=interceptors
    )
    return made


def control(address: str, authority: bytes) -> ControlHttpClient:
    """A client of the interface that starts runs and lists nodes."""
    return client(ControlHttpClient, address, authority, "flwr-cli")


def status_of(error: Exception) -> int:
    """The status that an answer had; 0 where none came."""
    return error.response.status_code if isinstance(error, httpx.HTTPStatusError) else 0


def reason_of(error: Exception) -> str:
    """What went wrong on the way, in one line."""
    if isinstance(error, httpx.HTTPStatusError):
        return one_line(f"status {error.response.status_code}: {error.response.text}", 200)
    return one_line(f"{type(error).__name__}: {error}", 200)


def unreachable(address: str, error: Exception, unknown: str = "does not know this run any more") -> Unreachable:
    """The same in our words; `unknown`: what it means that it does not let us in."""
    match status_of(error):
        case 0:
            what = "cannot be reached"
        case 401:
            what = unknown
        case status if status < 500:
            what = "refuses what it is asked"
        case _:
            what = "fails"
    return Unreachable(f"the SuperLink at {address} {what} ({reason_of(error)})")


@contextmanager
def reaching(address: str) -> Iterator[None]:
    """Have failures on the way to a SuperLink said in our words."""
    try:
        yield
    except (httpx.HTTPError, ObjectPushError, ValueError) as error:
        raise unreachable(address, error) from None


def admit(address: str, authority: bytes, keys: Mapping[str, ec.EllipticCurvePublicKey]) -> tuple[set[str], int]:
    """Have a SuperLink let in these nodes and no others.

    Gives the names that it does not take, because their keys were shut out before, and how many it has shut out now.
    """
    wanted = {public_key_to_bytes(key): name for name, key in keys.items()}
    with reaching(address), control(address, authority) as office:
        nodes = office.ListNodes(ListNodesRequest()).nodes_info
        spent = {wanted[node.public_key] for node in nodes if node.status == OUT and node.public_key in wanted}
        gone = [node.node_id for node in nodes if node.status != OUT and node.public_key not in wanted]
        for number in gone:
            office.UnregisterNode(UnregisterNodeRequest(node_id=number))
        for key in wanted.keys() - {node.public_key for node in nodes}:
            office.RegisterNode(RegisterNodeRequest(public_key=key))
    return spent, len(gone)


def answers(address: str, authority: bytes) -> bool:
    """Whether a SuperLink listens there, with a certificate of this authority."""
    context = ssl.create_default_context(cadata=authority.decode())
    try:
        httpx.get(f"https://{address}/", verify=context, timeout=2.0)
    except httpx.HTTPError:
        return False
    return True


def last_seen(address: str, authority: bytes, keys: dict[str, ec.EllipticCurvePublicKey]) -> dict[str, float]:
    """Name → seconds since a sign of life, of all nodes that were ever there."""
    names = {public_key_to_bytes(key): name for name, key in keys.items()}
    with reaching(address), control(address, authority) as office:
        nodes = office.ListNodes(ListNodesRequest()).nodes_info
    seen = {names[node.public_key]: node for node in nodes if node.public_key in names and node.online_until}
    # A sign of life is good for twice the time between two.
    return {name: time.time() - (node.online_until - 2 * node.heartbeat_interval) for name, node in seen.items()}
