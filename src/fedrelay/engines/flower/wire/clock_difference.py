"""How far our clock is from the SuperLink's, by the time in its answers.

Flower refuses requests that were signed five seconds ahead of its clock or five minutes behind it, and lets messages
expire by the clocks of both sides. Its errors do not mention clocks.
"""

from __future__ import annotations

import logging
import math
import time
from typing import ClassVar

import httpx
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext

from fedrelay.engines.flower.wire.superlink_process.protocol import TIME

log = logging.getLogger(__name__)

TOLERANCE = 5.0
"""Seconds by which clocks may disagree."""

QUIET = 600.0
"""Seconds after a warning in which there is no other."""

_SENT_AT = "fedrelay_sent_at"


class ClockHttpInterceptor:
    """Remembers when requests were sent, and warns if answers say that clocks disagree, though they were accepted."""

    warned_at: ClassVar[float] = float("-inf")
    """When the last warning was, of all clients of this process."""

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        context.request.extensions[_SENT_AT] = time.time()
        response = call_next(context)
        disagreement = clock_disagreement(response) if response.is_success else ""
        if disagreement and time.monotonic() - self.warned_at > QUIET:
            ClockHttpInterceptor.warned_at = time.monotonic()
            log.warning("%s; requests may fail or expire too early", disagreement)
        return response


def clock_disagreement(response: httpx.Response) -> str:
    """By how much our clock and the SuperLink's disagree, and what to do; empty if they agree."""
    try:
        theirs = float(response.headers[TIME])
    except (KeyError, ValueError):  # a proxy's own answer, or another SuperLink
        return ""
    received = time.time()
    sent = min(received, response.request.extensions.get(_SENT_AT, received))
    if not math.isfinite(theirs) or sent - TOLERANCE <= theirs <= received + TOLERANCE:
        return ""
    ahead = sent - theirs if theirs < sent else received - theirs
    which = "ahead of" if ahead > 0 else "behind"
    return f"the clock of this machine is {abs(ahead):.0f} s {which} the SuperLink's: set both, for example by NTP"
