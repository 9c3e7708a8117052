from __future__ import annotations

import pytest
import torch

from fedrelay.errors import RunFolderError
from fedrelay.local.client_state import ClientStateStore


def value(number: float) -> dict[str, torch.Tensor]:
    return {"drift": torch.full((100,), number)}


def held(client_states: ClientStateStore, clients: int) -> list[float | None]:
    return [kept["drift"][0].item() if (kept := client_states.get(client)) else None for client in range(clients)]


def test_a_client_without_a_hop_has_no_state():
    assert ClientStateStore().get(3) == {}


def test_beyond_the_budget_it_goes_to_disk_and_comes_back(tmp_path):
    client_states = ClientStateStore(tmp_path / "clients", budget=3 * 400)
    for round in (1, 2):
        for client in range(10):
            client_states.put(round, client, value(10 * round + client))
            assert client_states.bytes <= 3 * 400
    assert held(client_states, 11) == [*(20.0 + client for client in range(10)), None]


def test_without_a_folder_it_uses_one_that_goes_away():
    client_states = ClientStateStore(budget=400)
    for client in range(5):
        client_states.put(1, client, value(client))
    folder = client_states.folder
    assert folder is not None
    assert held(client_states, 5) == [0.0, 1.0, 2.0, 3.0, 4.0]
    client_states.close()
    assert not folder.exists()


@pytest.mark.parametrize("budget", [400, 1 << 20], ids=["spilled", "in memory"])
def test_what_was_not_committed_is_gone_after_a_crash(tmp_path, budget):
    client_states = ClientStateStore(tmp_path / "clients", budget)
    for client in range(4):
        client_states.put(1, client, value(client))
    client_states.commit(1)
    names = client_states.file_names
    client_states.delete_outdated(1)
    for client in range(2, 6):
        client_states.put(2, client, value(100 + client))
    again = ClientStateStore(tmp_path / "clients")
    again.restore(names)
    assert held(again, 6) == [0.0, 1.0, 2.0, 3.0, None, None]


def test_a_commit_replaces_only_what_changed(tmp_path):
    client_states = ClientStateStore(tmp_path / "clients")
    for round, client in ((1, 0), (1, 1), (2, 1)):
        client_states.put(round, client, value(10 * round + client))
        client_states.commit(round)
        client_states.delete_outdated(round)
    names = sorted(path.name.rsplit("-", 1)[0] for path in (tmp_path / "clients").iterdir())
    assert names == ["0-1", "1-2"]


def test_a_crash_between_commit_and_checkpoint_goes_back(tmp_path):
    client_states = ClientStateStore(tmp_path / "clients")
    client_states.put(1, 0, value(1))
    client_states.commit(1)
    names = client_states.file_names
    client_states.delete_outdated(1)
    client_states.put(2, 0, value(2))
    client_states.commit(2)  # the checkpoint that would refer to it is never written
    again = ClientStateStore(tmp_path / "clients")
    again.restore(names)
    assert held(again, 1) == [1.0]


def test_a_damaged_file_is_named(tmp_path):
    client_states = ClientStateStore(tmp_path / "clients")
    client_states.put(1, 0, value(1))
    client_states.commit(1)
    (path,) = (tmp_path / "clients").iterdir()
    path.write_bytes(path.read_bytes()[:-4] + b"oops")
    with pytest.raises(RunFolderError, match="is damaged"):
        ClientStateStore(tmp_path / "clients").restore(client_states.file_names)
    reading = ClientStateStore(tmp_path / "clients")
    reading.files[0] = path  # damaged since the run started
    with pytest.raises(RunFolderError, match="is damaged"):
        reading.get(0)
    path.unlink()
    with pytest.raises(RunFolderError, match="is missing; the run is damaged"):
        ClientStateStore(tmp_path / "clients").restore(client_states.file_names)
