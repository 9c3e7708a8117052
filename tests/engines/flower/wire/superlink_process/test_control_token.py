"""Who may control a SuperLink: the bearer of the token, and nobody else."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.common.constant import ACCESS_TOKEN_KEY

from fedrelay.engines.flower.wire.superlink_process.control_token import TokenPlugin, control_token

TOKEN = control_token(b"a secret of the server")


@pytest.mark.parametrize("given", [TOKEN, TOKEN.encode()])
def test_the_token_opens(given):
    valid, account = TokenPlugin(TOKEN).validate_tokens_in_metadata([(ACCESS_TOKEN_KEY, given)])
    assert valid
    assert account is not None


@pytest.mark.parametrize(
    "metadata",
    [
        [],
        [(ACCESS_TOKEN_KEY, "")],
        [(ACCESS_TOKEN_KEY, TOKEN[:-1])],
        [(ACCESS_TOKEN_KEY, "tökén")],
        [(ACCESS_TOKEN_KEY, "a secret of the server")],
        [(ACCESS_TOKEN_KEY, control_token(b"another"))],
        [(ACCESS_TOKEN_KEY, TOKEN), (ACCESS_TOKEN_KEY, TOKEN)],
        [("other", TOKEN)],
    ],
)
def test_nothing_else_does(metadata):
    plugin = TokenPlugin(TOKEN)
    assert plugin.validate_tokens_in_metadata(metadata) == (False, None)
    assert plugin.refresh_tokens(metadata) == (None, None)
    assert plugin.get_auth_tokens("code") is None
    assert plugin.get_login_details() is None
