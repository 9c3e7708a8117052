"""The token of the Control interface. Flower has a place for account plug-ins there; its only one accepts everybody."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from flwr.common.constant import ACCESS_TOKEN_KEY, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.supercore.auth.typing import AccountAuthCredentials, AccountAuthLoginDetails, AccountInfo
from flwr.superlink.auth_plugin import ControlAuthnPlugin

Metadata = Sequence[tuple[str, str | bytes]]


def control_token(secret: bytes) -> str:
    """The token that follows from the server's secret; it does not reveal the secret."""
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
