"""Pictures of claims."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.reproduce.test_records import CLAIM, ONLY, recorded, run

from fedrelay_reproduce.figures import MOST_LINES, panels_of
from fedrelay_reproduce.records import record_path, write_record
from fedrelay_reproduce.scaled_claim import scaled_claim


@pytest.mark.parametrize(("more", "panels"), [(MOST_LINES - 2, ["only", "later"]), (MOST_LINES - 1, ["only"])])
def test_what_was_added_is_drawn_as_long_as_lines_differ(tmp_path, more, panels):
    names = [f"fedavg {number}" for number in range(more)]
    methods = [{"method": "fedavg", "label": name} for name in names]
    later = ONLY.but("01/later", {"methods": methods}, only="small", seeds=1)
    recorded(tmp_path)
    runs = {name: {1: run(name, 0.1, 3)} for name in names}
    facts = {"versions": {"fedrelay": "1"}, "seconds": {"1": 1.0}}
    write_record(record_path(tmp_path, "small", "01/later"), later.spec("small"), runs, facts)
    claim = replace(CLAIM, supplements={"later": later})
    found = panels_of(scaled_claim(claim, "small", tmp_path / "none", records=tmp_path))
    assert [panel["title"] for panel in found] == panels
