"""The engine for a real federation: data stay with their owners, models travel through a Flower SuperLink."""

from importlib.util import find_spec

from fedrelay.errors import EngineError


def check_installed() -> None:
    """Flower comes with an extra of its own."""
    if find_spec("flwr") is None:
        raise EngineError("Flower is not installed; install it with: pip install 'fedrelay[flower]'")
