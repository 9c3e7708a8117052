"""The report of a real federation: what each node did, real times, and no advice that nodes cannot follow."""

from __future__ import annotations

import json
from datetime import datetime

import pytest
from tests.report.folders import ran

import fedrelay as fr
from fedrelay.data.open_federation import open_federation
from fedrelay.experiment.spec import DataSettings
from fedrelay.report.report_content import document

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

from fedrelay.engines.flower.credentials import make_server_folder

USUAL = {"rounds": 2, "batch_size": 64, "seed": 3, "fraction": 1.0, "recovery.timeout": 0.05, "eval.targets": [0.1]}


@pytest.fixture
def federation_run(make_nodes, use_nodes, tmp_path):
    make_server_folder(tmp_path / "server", ["localhost"])
    data = open_federation(DataSettings(name="digits", clients=3, alpha=0.3), 3)
    nodes = make_nodes(data, server=tmp_path / "server", signed=True)
    use_nodes(nodes)
    nodes.connection.reply_faults["n01"] = lambda request, reply: None if request.header["hop"][0] == 2 else reply
    engine = {"name": "flower", "folder": tmp_path / "server"}
    fr.run("fedavg", engine=engine, data="nodes", out=tmp_path / "run", **USUAL)
    return tmp_path / "run"


def cards(page):
    return {card["name"]: card for section in page["sections"] for card in section["cards"]}


def test_every_node_has_a_row_with_what_it_did(federation_run):
    page = document([federation_run])
    rows = cards(page)["nodes"]["table"]["rows"]
    assert [row[0] for row in rows] == ["n00", "n01", "n02"]
    assert [row[2] for row in rows] == ["2", "1", "2"]
    assert [row[3]["text"] for row in rows] == ["0", "1", "0"]
    assert [chip["text"] for chip in rows[1][3]["chips"]] == ["no reply in 0.05 s"]
    assert all(datetime.fromisoformat(row[5]) <= datetime.fromisoformat(row[6]) for row in rows)


def test_times_are_real_and_advice_can_be_followed(federation_run):
    page = document([federation_run])
    text = json.dumps([page[name] for name in ("headlines", "sections", "tables")]).lower()
    assert "virtual" not in text
    assert "real time" in text
    assert "eval.forgetting" not in json.dumps(page["sections"])
    assert "they stay at the nodes" in cards(page)["forgetting"]["empty"]
    assert "Start nodes with --holdout" in cards(page)["gains"]["empty"]
    [method] = page["methods"]
    seconds = method["curves"]["real_seconds"]
    assert 0 < seconds[0] < seconds[1]
    assert method["summary"]["costs_to"][0]["real_seconds"] == pytest.approx(seconds[0], rel=1e-3)


def test_beside_a_simulation_times_are_virtual(federation_run, tmp_path):
    simulated = ran(tmp_path / "simulated", "fedavg")
    page = document([federation_run, simulated])
    assert not page["real_times"]
    assert all("virtual_seconds" in method["curves"] for method in page["methods"])
    assert "nodes" not in cards(document([simulated]))


def test_the_ledger_names_nodes(federation_run):
    line = json.loads((federation_run / "ledger.jsonl").read_text().splitlines()[0])
    assert line["nodes"] == [[f"n{client:02d}"] for [client] in line["routes"]]


def test_the_terminal_shows_no_virtual_time(federation_run, capsys):
    from fedrelay.cli import main

    assert main(["show", str(federation_run)]) == 0
    assert "virtual" not in capsys.readouterr().out
