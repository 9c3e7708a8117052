"""Flower's SuperLink, whose Control interface asks for a token.

The Control interface registers and unregisters nodes and starts and stops runs. As shipped, it answers everybody who
reaches the port. Flower has a place for account plug-ins there, but its only one accepts everybody; this one accepts
the bearer of a token that follows from the server's secret.

This file is the program of the child process, too. So it imports nothing of FedRelay: that would take seconds and a
few hundred megabytes.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flwr.common.constant import ACCESS_TOKEN_KEY, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.supercore.auth.typing import AccountAuthCredentials, AccountAuthLoginDetails, AccountInfo
from flwr.superlink.auth_plugin import ControlAuthnPlugin

LOADER = "load_control_authn_plugin"
"""The function of Flower's that chooses the plug-in."""

Metadata = Sequence[tuple[str, str | bytes]]


def control_token(secret: bytes) -> str:
    """The token of the Control interface; it does not reveal the secret."""
    return hmac.new(secret, b"control interface", hashlib.sha256).hexdigest()


class TokenPlugin(ControlAuthnPlugin):
    """Accepts requests with the token and no others. There is nothing to log in to."""

    def __init__(self, token: str) -> None:
        self.token = token

    def get_login_details(self) -> AccountAuthLoginDetails | None:
        return None

    def validate_tokens_in_metadata(self, metadata: Metadata) -> tuple[bool, AccountInfo | None]:
        given = [value for name, value in metadata if name == ACCESS_TOKEN_KEY]
        if len(given) != 1 or not hmac.compare_digest(_bytes(given[0]), self.token.encode()):
            return False, None
        return True, AccountInfo(flwr_aid=NOOP_FLWR_AID, account_name=NOOP_ACCOUNT_NAME)

    def get_auth_tokens(self, device_code: str) -> AccountAuthCredentials | None:
        return None

    def refresh_tokens(self, metadata: Metadata) -> tuple[Metadata | None, AccountInfo | None]:
        return None, None


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def main(secret: Path, options: Sequence[str]) -> None:
    """Run a SuperLink with these options of `flower-superlink`."""
    program: Any = importlib.import_module("flwr.superlink.cli.flower_superlink")
    if not hasattr(program, LOADER):  # without this, everybody could control it
        sys.exit(f"this version of Flower has no {LOADER}: its Control interface cannot be closed")
    plugin = TokenPlugin(control_token(secret.read_bytes()))
    setattr(program, LOADER, lambda: plugin)
    sys.argv = ["flower-superlink", *options]
    program.flower_superlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
