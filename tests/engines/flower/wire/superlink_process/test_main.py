"""The program of a SuperLink starts only if all its additions have a place in Flower's."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from fedrelay.engines.flower.wire.superlink_process import __main__ as program


def test_a_flower_without_a_place_for_the_plug_in_is_not_started(tmp_path, monkeypatch):
    (tmp_path / "secret").write_bytes(b"secret")
    monkeypatch.setattr(program, "LOADER", "load_something_else")
    with pytest.raises(SystemExit, match="its Control interface cannot be closed"):
        program.main(tmp_path / "secret", tmp_path / "log", [])


def test_a_flower_whose_messages_cannot_be_limited_is_not_started(tmp_path, monkeypatch):
    (tmp_path / "secret").write_bytes(b"secret")
    monkeypatch.setattr(program, "LAYERS", "get_something_else")
    with pytest.raises(SystemExit, match="its messages cannot be limited"):
        program.main(tmp_path / "secret", tmp_path / "log", [])
