"""Damage to specs and files, and the verdict on what came of it.

Seeded, so a failure repeats; its message has the seed of the case.
"""

from __future__ import annotations

import copy
import json
import math
import os
import random
import signal
import traceback
from collections.abc import Callable
from typing import Any

from fedrelay.errors import FedRelayError

SECONDS = 10
"""No single case may take longer; most take a millisecond, but the machine may be busy."""

ODD = (
    None, True, False, 0, -1, 1, 2, 3.5, -0.0, 1e-320, 1e308, math.inf, -math.inf, math.nan, 10**25, -(10**25), 2**63,
    "", " ", "0", "nan", "none", "auto", "../../etc/passwd", "/dev/zero", "a" * 3000, "\x00", "\ud800", "é∞𝔉", "{}",
    "%s", [], [[]], [None], [0, 1], [3, 3], ["x"] * 50, {}, {"name": None}, {"": 1}, {"a": {"b": {"c": []}}},
    {"name": "digits"}, {1: 2}, (), "fedseq+", "+", "fedavg+fedavg", "random", "recv",
)  # fmt: skip

THOROUGH = bool(os.environ.get("FEDRELAY_THOROUGH"))
"""With this variable set, as by `make test-all`, there are ten times as many cases."""

FAIR = ("accepted", "refused")
"""The verdicts that any input may get."""


class Late(BaseException):
    """Time is up; nothing that catches every `Exception` swallows it."""


def cases(count: int) -> range:
    """The seeds of so many cases, or of the first tenth of them."""
    return range(count if THOROUGH else count // 10)


def verdict(action: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """Whether something was "accepted" or "refused" with one clear message; otherwise, what went wrong."""

    def late(signum: int, frame: object) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        action(*arguments, **options)
    except FedRelayError as error:
        return "refused" if 0 < len(str(error).strip()) < 20_000 else "an error without a message, or an endless one"
    except Late:
        return f"took longer than {SECONDS} s"
    except Exception:
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return "accepted"


def places(tree: object) -> list[tuple]:
    """Every (container, key) inside a tree."""
    below = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [found for key, value in below for found in ((tree, key), *places(value))]


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Bytes that were cut, flipped, repeated, replaced, or JSON in which one value is another."""
    content = bytearray(content)
    match rng.randrange(6):
        case 0:
            del content[rng.randrange(len(content) + 1) :]
        case 1:
            for _ in range(rng.randint(1, 4)):
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        case 2:
            at = rng.randrange(len(content))
            content[at:at] = rng.randbytes(rng.randint(1, 40))
        case 3:
            at = rng.randrange(len(content))
            content += content[at:]
        case 4:
            return rng.choice((b"", b"{}", b"[]", b"null", b"0\n", b"[" * 99_999, b"\xff" * 64, b"{}\n" * 9, b'"' * 7))
        case _:
            return other_values(bytes(content), rng)
    return bytes(content)


def other_values(content: bytes, rng: random.Random) -> bytes:
    """JSON lines with one value replaced; other files get another size in their first eight bytes."""
    try:
        rows = [json.loads(line) for line in content.decode().splitlines()]
        found = places(rows)
        for _ in range(rng.randint(1, 2)):
            container, key = rng.choice(found)
            container[key] = copy.deepcopy(rng.choice([odd for odd in ODD if odd != {1: 2} and odd != ()]))
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    except (ValueError, UnicodeError, IndexError):
        return rng.choice((2**63, 2**40, 0, len(content))).to_bytes(8, "little") + content[8:]
