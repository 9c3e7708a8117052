"""The program of the process: `flower-superlink` with our additions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starlette.middleware import Middleware
from uvicorn.config import HTTP_PROTOCOLS

from fedrelay.engines.flower.wire.superlink_process.control_token import TokenPlugin, control_token
from fedrelay.engines.flower.wire.superlink_process.http_head_limits import LimitedHttpProtocol
from fedrelay.engines.flower.wire.superlink_process.log_rotation import keep_rotating
from fedrelay.engines.flower.wire.superlink_process.message_calls import MessageCalls
from fedrelay.engines.flower.wire.superlink_process.request_limits import BodyLimits, RequestLimits, sender_of

LOADER = "load_control_authn_plugin"
"""The function of Flower's that chooses the plug-in."""

APP, LAYERS = "flwr.superlink.main", "_get_middleware"
"""The function of Flower's that names the layers that every request goes through, and its module."""


def main(secret: Path, log: Path, options: Sequence[str]) -> None:
    """Run a SuperLink with these options of `flower-superlink`; `log` is the file that it writes its output to."""
    program: Any = importlib.import_module("flwr.superlink.cli.flower_superlink")
    if not hasattr(program, LOADER):  # without this, everybody could control it
        sys.exit(f"this version of Flower has no {LOADER}: its Control interface cannot be closed")
    plugin = TokenPlugin(control_token(secret.read_bytes()))
    setattr(program, LOADER, lambda: plugin)
    app: Any = importlib.import_module(APP)
    layers = getattr(app, LAYERS, None)
    if layers is None:  # without this, messages may be of any size
        sys.exit(f"this version of Flower has no {LAYERS}: its messages cannot be limited")
    limits = Middleware(RequestLimits, sender_of=sender_of, limits=BodyLimits())
    setattr(app, LAYERS, lambda: [limits, Middleware(MessageCalls), *layers()])
    if "auto" not in HTTP_PROTOCOLS:  # without this, headers may be of any size
        sys.exit("this version of uvicorn has no choice of protocols: headers of requests cannot be limited")
    HTTP_PROTOCOLS["auto"] = f"{LimitedHttpProtocol.__module__}:{LimitedHttpProtocol.__name__}"
    keep_rotating(log)
    sys.argv = ["flower-superlink", *options]
    program.flower_superlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
