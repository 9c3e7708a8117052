"""The command line: `fedrelay run`, `compare`, `resume`, `plan`, `methods`, `data`."""

from fedrelay.cli.app import main

__all__ = ["main"]
