"""The client of the NVFlare contender: takes the model, trains it, notes when, and hands it back."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import nvflare.client as flare
import torch
from workload import CASES, local_pass


def main() -> None:
    """Train whenever it is this client's turn; one line of (begin, end, steps) for each."""
    case, folder = CASES[sys.argv[1]], Path(sys.argv[2])
    torch.set_num_threads(1)
    model, (x, y) = case.model(), case.data()
    flare.init()
    site = flare.get_site_name()
    client = int(site.removeprefix("site-"))
    while flare.is_running():
        received = flare.receive()
        if received is None:
            break
        began = time.monotonic()
        model.load_state_dict({name: torch.as_tensor(value) for name, value in received.params.items()})
        steps = local_pass(model, x[client], y[client])
        with (folder / site).open("a") as notes:
            notes.write(f"{began} {time.monotonic()} {steps}\n")
        flare.send(flare.FLModel(params=model.state_dict()))


if __name__ == "__main__":
    main()
