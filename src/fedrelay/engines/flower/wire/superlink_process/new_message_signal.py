"""Tells who waits that a message was stored."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass
class NewMessageSignal:
    """Counts the messages for one receiver, and wakes who waits for the next one."""

    count: int = 1
    """From one: who knows of none yet is told at once, and looks for older messages."""

    next_message: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self) -> None:
        self.count += 1
        self.next_message.set()
        self.next_message = asyncio.Event()

    async def wait(self, known: int, seconds: float) -> None:
        """Wait until the count is another than `known`, for at most these seconds."""
        if self.count == known:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.next_message.wait(), seconds)
