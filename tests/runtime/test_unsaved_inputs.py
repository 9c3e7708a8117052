from __future__ import annotations

from pathlib import Path

import pytest

from fedrelay.errors import RunFolderError
from fedrelay.runtime.unsaved_inputs import check_unsaved_inputs


def test_a_missing_part_of_the_callers_own_is_named_with_what_to_do():
    facts, run = {"own_data": False, "own_model": True, "own_task": True}, Path("runs/a")
    check_unsaved_inputs(run, facts, "use fr.f", {"data": None, "model": "net", "task": "loss"}, RunFolderError)
    with pytest.raises(RunFolderError) as refusal:
        check_unsaved_inputs(run, facts, "use fr.f", {"data": None, "model": "net", "task": None}, RunFolderError)
    assert str(refusal.value) == "runs/a: was started from Python with a task of your own; use fr.f('runs/a', task=…)"
