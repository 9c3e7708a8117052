"""The command line. Each module is named after its command."""

from fedrelay.cli.app import main

__all__ = ["main"]
