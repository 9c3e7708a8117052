"""A server that chooses encodings to learn single cells of a node's table: it reads the same words for all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrelay.engines.flower.job_description import encoding_from_plain
from fedrelay.engines.flower.messages import FAILED, Message
from fedrelay.engines.flower.node.node_table import NodeTable
from fedrelay.engines.flower.node.service import HIDDEN_DATA_ERROR, NodeService
from fedrelay.errors import DataError
from fedrelay.experiment.spec import TableSettings

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

ROWS = ["61.25,bern,no", "48.5,ulm,yes", "70,bern,yes"]
LARGEST = float(np.finfo(np.float32).max)


def table(folder: Path, rows: list[str]) -> NodeTable:
    (folder / "t.csv").write_text("\n".join(["age,town,ill", *rows]))
    return NodeTable.read(folder / "t.csv", TableSettings(target="ill"), min_rows=1)


def encoding(scale: float = 1.0, labels: tuple[str, ...] = ("no", "yes"), *numbers: str) -> dict[str, Any]:
    number = {"missing": 0.0, "shift": 0.0, "scale": scale, "marked": False}
    names = dict.fromkeys(("age", *numbers), number)
    towns = {"town": {"categories": ["bern", "ulm"], "missing": "bern", "marked": False}}
    categories = {name: each for name, each in towns.items() if name not in numbers}
    return {
        "numbers": list(names.items()),
        "categories": list(categories.items()),
        "labels": labels,
        "scaled_per_client": False,
    }


def test_errors_of_a_foreign_encoding_tell_the_server_nothing_of_the_rows(tmp_path, caplog):
    found = table(tmp_path, ROWS)
    service = NodeService(found.encoded_by_itself(), tmp_path, table=found)

    def reason(plain: dict[str, Any]) -> str:
        job = json.dumps({"classes": 2, "mean_size": 3.0, "table": plain})
        reply = service.respond(Message({"kind": "evaluate", "job": job}))
        assert reply.header["kind"] == FAILED
        return reply.header["reason"]

    assert reason(encoding(1.0, ("no", "yes"), "town")) == HIDDEN_DATA_ERROR  # 'bern' is not a number
    assert "'bern'" in caplog.text  # the owner reads which cell
    assert reason(encoding(1.0, ("no", "perhaps"))) == HIDDEN_DATA_ERROR
    # Which of them makes a cell too large for float32 would compare the cell with a number of the server's choice.
    assert len({reason(encoding(scale)) for scale in (1.0, 61 / LARGEST, 62 / LARGEST, 0.0)}) == 1


def test_numbers_too_large_for_float32_are_clipped_for_the_server_and_refused_at_the_start(tmp_path):
    x = table(tmp_path, ROWS).encoded(encoding_from_plain(encoding(61 / LARGEST))).train_samples(0).x
    assert x[:, 0].tolist() == [pytest.approx(LARGEST), pytest.approx(LARGEST * 48.5 / 61), pytest.approx(LARGEST)]
    with pytest.raises(DataError, match=r"column 'age', row 1: 1e\+39 is not a finite float32 number"):
        table(tmp_path, ["1e39,ulm,no", "2,ulm,yes"])
