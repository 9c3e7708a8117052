"""Which hops count: those that were accepted, in the order of waves, as the checkpoint has them."""

from __future__ import annotations

import time

import pytest
import torch

from fedrelay.engines.flower.server.client_state_versions import ClientStateVersions
from fedrelay.errors import RunFolderError
from fedrelay.local.client_state import ClientStateStore


@pytest.fixture
def versions():
    return ClientStateVersions(ClientStateStore())


def take(versions, round, *hops, waves=False):
    """One round: (client, route) of every accepted hop. Returns the ids of the hops."""
    versions.start_round(round)
    numbers = []
    for client, route in hops:
        number = versions.new_id()
        versions.request_fields(client, number)
        versions.accept(client, route, number)
        numbers.append(number)
        if not waves:
            versions.merge_accepted()
    versions.merge_accepted()
    versions.commit()
    return numbers


def test_a_hop_reads_what_the_last_accepted_one_wrote(versions):
    assert versions.request_fields(4, 1) == {"request": 1, "state": 0, "merged_from": [], "oldest_needed": 0}
    [first] = take(versions, 1, (4, 0))
    versions.start_round(2)
    assert versions.request_fields(4, 9)["state"] == first
    assert versions.request_fields(5, 9)["state"] == 0


def test_a_second_hop_at_a_client_reads_what_the_first_wrote(versions):
    versions.start_round(1)
    versions.accept(4, 0, 7)
    versions.merge_accepted()
    assert versions.request_fields(4, 8)["state"] == 7


def test_parallel_hops_at_a_client_are_merged_in_the_order_of_routes(versions):
    [base] = take(versions, 1, (4, 0))
    late, early = take(versions, 2, (4, 3), (4, 1), waves=True)
    versions.start_round(3)
    found = versions.request_fields(4, 9)
    assert found["merged_from"] == [base, early, late]
    assert found["state"] > late
    assert found["oldest_needed"] == base  # needed to put it together


def test_hops_that_were_not_committed_do_not_count(versions):
    [first] = take(versions, 1, (4, 0))
    versions.start_round(2)
    for client in (4, 5):
        versions.request_fields(client, 9)
        versions.accept(client, 0, versions.new_id())
    versions.merge_accepted()
    versions.start_round(2)  # once more
    assert [versions.request_fields(client, 9)["state"] for client in (4, 5)] == [first, 0]


def test_versions_stay_needed_until_the_checkpoint_is_on_disk(tmp_path):
    client_states = ClientStateStore(tmp_path / "clients")
    versions = ClientStateVersions(client_states)
    [first] = take(versions, 1, (4, 0))
    client_states.commit(1)
    [second] = take(versions, 2, (4, 0))
    versions.start_round(3)
    assert (versions.request_fields(4, 9)["state"], versions.request_fields(4, 9)["oldest_needed"]) == (second, first)
    again = ClientStateStore(tmp_path / "clients")  # after a death: what the checkpoint names
    again.restore(client_states.file_names)
    resumed = ClientStateVersions(again)
    resumed.start_round(2)
    assert resumed.request_fields(4, 9)["state"] == first


def test_two_copies_choose_other_numbers_even_if_the_clock_stands_still(monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: 1000)
    copies = [ClientStateVersions(ClientStateStore()) for _ in range(2)]
    first, second = ([versions.new_id() for _ in range(3)] for versions in copies)
    assert first[0] == second[0] == 1000  # the clock's own
    assert first == sorted(first)
    assert not set(first[1:]) & set(second[1:])


def test_without_client_state_nothing_is_written(tmp_path):
    client_states = ClientStateStore(tmp_path / "clients")
    versions = ClientStateVersions(client_states, enabled=False)
    take(versions, 1, (4, 0), (5, 1))
    client_states.commit(1)
    versions.start_round(2)
    assert versions.request_fields(4, 9) == {"request": 9, "state": 0, "merged_from": [], "oldest_needed": 0}
    assert not (tmp_path / "clients").exists()


def test_numbers_grow(versions):
    numbers = [versions.new_id() for _ in range(1000)]
    assert numbers == sorted(set(numbers))
    assert ClientStateVersions(ClientStateStore()).new_id() >= numbers[0]


def test_runs_of_an_earlier_version_are_refused(versions):
    versions.client_states.put(1, 4, {"turn": torch.tensor([7])})
    with pytest.raises(RunFolderError, match="started by an older FedRelay and cannot be resumed"):
        versions.request_fields(4, 9)
