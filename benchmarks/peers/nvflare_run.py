"""NVFlare: its cyclic recipe in its simulator with two clients; a hop is timed from one client's begin to the next's.

Generous to NVFlare: the server neither saves models nor collects garbage between rounds.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from nvflare.app_opt.pt.recipes.cyclic import CyclicRecipe
from nvflare.recipe.sim_env import SimEnv
from torch import nn
from workload import CASES, STEPS, WARM_UP, report, task

CLIENTS = 2


class Network(nn.Sequential):
    """The network as a class that the server can make itself, from its one argument."""

    def __init__(self, case: str) -> None:
        super().__init__(*CASES[case].model())
        self.case = case


def main() -> None:
    """Let the model go around; only the time between the first and the last timed hop counts."""
    wanted = task()
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        os.environ["PYTHONPATH"] = str(here)
        notes = Path(folder) / "notes"
        notes.mkdir()
        recipe = CyclicRecipe(
            model=Network(wanted.case.name),
            num_rounds=WARM_UP + wanted.rounds,
            min_clients=CLIENTS,
            train_script=str(here / "nvflare_client.py"),
            train_args=f"{wanted.case.name} {notes}",
            server_memory_gc_rounds=0,
            server_config_overrides={"persist_every_n_rounds": 0, "snapshot_every_n_rounds": 0},
        )
        recipe.execute(SimEnv(num_clients=CLIENTS, workspace_root=folder))
        lines = [line.split() for site in notes.iterdir() for line in site.read_text().splitlines()]
    hops = sorted((float(begin), int(steps)) for begin, _, steps in lines)
    assert len(hops) == CLIENTS * (WARM_UP + wanted.rounds)
    assert {steps for _, steps in hops} == {STEPS}
    begins = [begin for begin, _ in hops[CLIENTS * WARM_UP :]]
    report(wanted.case, begins[-1] - begins[0], len(begins) - 1)


if __name__ == "__main__":
    main()
