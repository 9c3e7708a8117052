"""Clients that leave a run for good: the same bits as if it had been planned, and no hop after their last round."""

from __future__ import annotations

import json

import pytest
from tests.runtime.eight_clients import Dies, federation, network
from tests.runtime.test_extension import SETTINGS, WITH_STATE
from typer.testing import CliRunner

import fedrelay as fr
from fedrelay.cli.app import program
from fedrelay.robustness.fault_events import is_fault
from fedrelay.runtime.run_folder_reader import RunFolderReader

LEAVER, LAST = 3, 2


class Visits(fr.Callback):
    """Notes the clients of every round."""

    def __init__(self):
        self.clients = {}

    def on_round_end(self, context):
        self.clients[context.round] = {client for route in context.plan.routes for client in route.clients}


@pytest.fixture(scope="module")
def data():
    return federation()


def start(method, data, out=None, **settings):
    return fr.run(method, data=data, model=network(), out=out, **(SETTINGS | settings))


def interrupted(method, data, out, **settings):
    with pytest.raises(KeyboardInterrupt):
        start(method, data, out, rounds=6, callbacks=Dies(LAST), checkpoint={"seconds": 0}, **settings)


def events(out):
    return [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("method", ["fedavg", "fedseqinter", "fedasyncseq", "spfl+scaffold", "wfsl+fedprox", "fedgsp"])
def test_a_run_goes_on_without_a_client_as_if_that_had_been_planned(tmp_path, data, method):
    visits, settings = Visits(), WITH_STATE[method]
    planned = start(method, data, rounds=6, withdrawn={str(LEAVER): LAST}, callbacks=visits, **settings)
    interrupted(method, data, tmp_path / "run", **settings)
    result = fr.resume(tmp_path / "run", without=[LEAVER], data=data, model=network())
    assert result.weights_sha256 == planned.weights_sha256
    assert all(LEAVER not in clients for round, clients in visits.clients.items() if round > LAST)
    assert any(clients for round, clients in visits.clients.items() if round > LAST)


def test_the_withdrawal_is_recorded(tmp_path, data):
    out = tmp_path / "run"
    interrupted("fedavg", data, out)
    for _ in range(2):  # the second time, the client has left already
        fr.resume(out, without=[str(LEAVER)], rounds=6, data=data, model=network())
    [event] = events(out)
    assert (event["round"], event["client"]) == (LAST + 1, LEAVER)
    assert (event["what"], event["done"]) == ("withdrawn", "left out from now on")
    assert not is_fault(event)
    [change] = json.loads((out / "run.json").read_text())["extensions"]
    assert (change["without"], change["done"], change["from"], change["to"]) == ([str(LEAVER)], LAST, 6, 6)
    shown = CliRunner().invoke(program(), ["show", str(out)])
    assert f"{LEAVER} after round {LAST}" in shown.output
    assert "extended" not in shown.output


def test_a_complete_run_goes_on_without_a_client_only_with_more_rounds(tmp_path, data):
    start("fedavg", data, tmp_path, rounds=LAST)
    with pytest.raises(fr.SpecError, match=r"without: .* is complete; give a larger number of rounds"):
        fr.resume(tmp_path, without=[LEAVER], data=data, model=network())
    longer = fr.resume(tmp_path, rounds=6, without=[LEAVER], data=data, model=network())
    planned = start("fedavg", data, rounds=6, withdrawn={str(LEAVER): LAST})
    assert longer.weights_sha256 == planned.weights_sha256
    assert longer.weights_sha256 != start("fedavg", data, rounds=6).weights_sha256


@pytest.mark.parametrize(
    ("withdrawn", "message"),
    [
        ({"8": 1}, "withdrawn: unknown client '8'"),
        ({"berlin": 1}, "withdrawn: unknown client 'berlin'"),
        ({str(client): 1 for client in range(8)}, "withdrawn: at least one client with samples must stay"),
        ({"3": -1}, "withdrawn.3: "),
    ],
)
def test_impossible_withdrawals(withdrawn, message, data):
    with pytest.raises(fr.SpecError, match=message):
        start("fedavg", data, rounds=3, withdrawn=withdrawn)


def test_a_refused_withdrawal_leaves_the_run_as_it_was(tmp_path, data):
    interrupted("fedavg", data, tmp_path / "run")
    spec = (tmp_path / "run" / "spec.yaml").read_bytes()
    with pytest.raises(fr.SpecError, match="unknown client 'berlin'"):
        fr.resume(tmp_path / "run", without=["berlin"], data=data, model=network())
    assert (tmp_path / "run" / "spec.yaml").read_bytes() == spec
    assert not list((tmp_path / "run").glob("events.jsonl"))


def test_one_client_needs_no_list(tmp_path, data):
    start("fedavg", data, tmp_path, rounds=2)
    with pytest.raises(fr.SpecError, match="unknown client '12'"):
        fr.resume(tmp_path, rounds=3, without="12", data=data, model=network())
    fr.resume(tmp_path, rounds=3, without=3, data=data, model=network())
    assert RunFolderReader(tmp_path).experiment.withdrawn == {"3": 2}
