"""The public half of a node's sealing key, as plain data that the server passes on."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fedrelay.experiment.spec import Section

Hexadecimal = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{2})+$", max_length=400)]


class SealingCertificate(Section):
    """A sealing key, signed by the key that identifies its node."""

    key: Hexadecimal = Field(min_length=64, max_length=64)
    signature: Hexadecimal
