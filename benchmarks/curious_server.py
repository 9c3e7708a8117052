"""What a curious server can draw of its clients' images from the models that it reads: open against sealed routes.

    .venv/bin/python benchmarks/curious_server.py           run the attacks, print the table
    .venv/bin/python benchmarks/curious_server.py --write   also write docs/curious-server.png
    .venv/bin/python benchmarks/curious_server.py --smoke   one image per client, a few steps

Gradient inversion: the server knows the method, the settings, the number of samples, the model before and the model
after. It looks for images and labels that lead from the one to the other, by gradient descent through the training
itself. On open routes it reads both models for every client. On sealed routes it reads the start and the end of the
route, so it looks for the images of all clients of the route at once. One model goes through four clients, each of
which takes one step on all its images: the case that is easiest for the attacker.

The runs are simulated; tests/engines/flower/test_curious_server.py compares this view with the messages of a real
server.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment
from fedrelay.routes.arrival import Arrival
from fedrelay.routes.plan import RoundPlan
from fedrelay.runtime.round_loop import run_prepared

CLIENTS, CLASSES, PIXELS, HIDDEN = 4, 10, 64, 64
RATE = 0.1
SEED = 3
STEPS = 500
"""Steps of the attacker."""

IMAGES = (1, 4, 8, 16)
"""How many images each client has."""

SHOWN = 8
"""Images per client in the picture."""

DOCS = Path(__file__).parent.parent / "docs"


class Seen(NamedTuple):
    """Two models that the server reads, and the clients that trained from the one to the other, in order."""

    clients: tuple[int, ...]
    before: Tensor
    after: Tensor


@dataclass
class ServerView:
    """All that a server reads of models."""

    sealed: bool
    seen: list[Seen] = field(default_factory=list)

    def hops_to_tap(self, plan: RoundPlan) -> tuple[tuple[int, int], ...]:
        return tuple((number, hop) for number, route in enumerate(plan.routes) for hop in range(len(route.clients)))

    def on_received_models(self, plan: RoundPlan, arrivals: Sequence[Arrival]) -> None:
        """Models that clients receive are on their way through the server; on sealed routes it reads the first."""
        for arrival in arrivals:
            received = [model.clone() for _, model in sorted(arrival.received_models.items())]
            if self.sealed:
                self.seen.append(Seen(arrival.clients, received[0], arrival.weights.clone()))
            else:
                models = [*received, arrival.weights.clone()]
                self.seen += [Seen((client,), *models[k : k + 2]) for k, client in enumerate(arrival.clients)]


class Run(NamedTuple):
    """What the server sees of a run, and what it would like to see: client × image × pixel."""

    seen: list[Seen]
    truth: Tensor


def run(images: int, rounds: int, *, sealed: bool) -> Run:
    """One model through all clients, each of which takes a single step on all its images."""
    chosen = experiment(
        "fedcyclic",
        data={"name": "digits", "clients": CLIENTS, "partition": "iid", "samples": CLIENTS * images},
        model={"name": "mlp", "hidden": (HIDDEN,)},
        train={"lr": RATE, "batch_size": images, "momentum": 0.0},
        route={"handover": "sealed" if sealed else "server"},
        engine={"workers": 1},
        fraction=1.0,
        rounds=rounds,
        seed=SEED,
    )
    ready, view = prepare(chosen), ServerView(sealed)
    run_prepared(ready, tap=view)
    samples = [ready.prepared.federation.train_samples(client).load() for client in range(CLIENTS)]
    return Run(view.seen, torch.stack([each.single_input.flatten(1) for each in samples]))


def trained(model: Tensor, images: Tensor, labels: Tensor) -> Tensor:
    """A client's model after its step, as the attacker computes it."""
    sizes = (HIDDEN * PIXELS, HIDDEN, CLASSES * HIDDEN, CLASSES)
    first, bias, second, last = model.split(sizes)
    features = torch.relu(images @ first.view(HIDDEN, PIXELS).T + bias)
    scores = features @ second.view(CLASSES, HIDDEN).T + last
    loss = -(labels * torch.log_softmax(scores, -1)).sum(-1).mean()
    [gradient] = torch.autograd.grad(loss, model, create_graph=True)
    return model - RATE * gradient


def reconstructed(seen: Sequence[Seen], images: int, steps: int) -> Tensor:
    """The attacker's images: client × image × pixel."""
    torch.manual_seed(SEED)
    pixels = (0.1 * torch.randn(CLIENTS, images, PIXELS)).requires_grad_()
    labels = (0.1 * torch.randn(CLIENTS, images, CLASSES)).requires_grad_()
    optimizer = torch.optim.Adam([pixels, labels], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        drawn, guessed = torch.sigmoid(pixels), torch.softmax(labels, -1)
        misfit = torch.zeros(())
        for clients, before, after in seen:
            model = before.clone().requires_grad_()
            for client in clients:
                model = trained(model, drawn[client], guessed[client])
            misfit = misfit + ((model - after) ** 2).sum() / ((before - after) ** 2).sum()
        optimizer.zero_grad()
        misfit.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return torch.sigmoid(pixels.detach())


def psnr(truth: Tensor, candidates: Tensor) -> Tensor:
    """For each true image, the peak signal-to-noise ratio of the candidate that is closest to it, in dB."""
    errors = ((truth[:, None] - candidates[None]) ** 2).mean(-1).min(1).values
    return -10 * torch.log10(errors.clamp(min=1e-6))


def mean_psnr(truth: Tensor, found: Tensor, *, of_client: bool) -> float:
    """The mean over all images; candidates are those that the attacker ascribes to the client, or all."""
    pairs = zip(truth, found if of_client else [found.flatten(0, 1)] * CLIENTS, strict=True)
    return torch.cat([psnr(own, candidates) for own, candidates in pairs]).mean().item()


class Row(NamedTuple):
    """How close the attacker comes with a number of images per client, in dB."""

    images: int
    open_routes: float
    sealed: float
    sealed_rounds: float
    sealed_rounds_any: float
    guess: float
    guess_any: float


def attack(images: int, rounds: int, steps: int) -> tuple[Row, dict[str, Tensor]]:
    """The attack on an open route, on a sealed one, and on several rounds of a sealed one."""
    plain, sealed, several = run(images, 1, sealed=False), run(images, 1, sealed=True), run(images, rounds, sealed=True)
    found = {
        "open routes": reconstructed(plain.seen, images, steps),
        "sealed, one round": reconstructed(sealed.seen, images, steps),
        f"sealed, {rounds} rounds": reconstructed(several.seen, images, steps),
    }
    opened, single, joint = found.values()
    truth = plain.truth
    other = prepare(experiment("fedcyclic", data={"name": "digits", "clients": 2})).prepared.federation.test
    guess = other.load().single_input.flatten(1)[: CLIENTS * images].view(CLIENTS, images, PIXELS)
    return Row(
        images,
        mean_psnr(truth, opened, of_client=True),
        mean_psnr(truth, single, of_client=True),
        mean_psnr(truth, joint, of_client=True),
        mean_psnr(truth, joint, of_client=False),
        mean_psnr(truth, guess, of_client=True),
        mean_psnr(truth, guess, of_client=False),
    ), {"images of one client": truth, **found}


def table(rows: Sequence[Row], rounds: int) -> str:
    """All rows in Markdown."""
    names = "open", "sealed, one round", f"sealed, {rounds} rounds", "of any client", "other digits", "of any client"
    lines = [f"| images of a client | {' | '.join(names)} |", f"|---:|{'---:|' * len(names)}"]
    return "\n".join([*lines, *(f"| {row.images} | {' | '.join(f'{each:.1f}' for each in row[1:])} |" for row in rows)])


def draw(rows: Sequence[Row], pictures: dict[str, Tensor], rounds: int, path: Path) -> None:
    """The images of the first client with what is closest to each, and how close by the number of images."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    truth = pictures["images of one client"][0]
    figure = plt.figure(figsize=(10.5, 3.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.5, 1))
    panels = left.subplots(len(pictures), len(truth), squeeze=False)
    for line, (title, found) in zip(panels, pictures.items(), strict=True):
        closest = ((truth[:, None] - found[0][None]) ** 2).mean(-1).argmin(1)
        for axes, image in zip(line, found[0][closest], strict=True):
            side = math.isqrt(PIXELS)
            axes.imshow(image.view(side, side), cmap="gray_r", vmin=0, vmax=1)
            axes.set_xticks([])
            axes.set_yticks([])
        line[0].set_ylabel(
            title.replace(", ", ",\n").replace("of one", "\nof one"), rotation=0, ha="right", va="center"
        )
    axes = right.subplots()
    counts = [row.images for row in rows]
    curves = {
        "open_routes": ("open routes", "C0o-"),
        "sealed": ("sealed, one round", "C1s-"),
        "sealed_rounds": (f"sealed, {rounds} rounds", "C2^-"),
        "sealed_rounds_any": ("… of any client", "C2^--"),
        "guess": ("other digits", "k:"),
        "guess_any": ("… of any client", "k-."),
    }
    for name, (title, style) in curves.items():
        axes.plot(counts, [getattr(row, name) for row in rows], style, label=title)
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, map(str, counts))
    axes.set_xlabel("images of each of the four clients")
    axes.set_ylabel("closest image, PSNR in dB")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Attack, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/curious-server.png")
    parser.add_argument("--rounds", type=int, default=4, help="rounds that the attacker on sealed routes combines")
    parser.add_argument("--smoke", action="store_true", help="check that it works; write nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, pictures = [], {}
    for images in (1,) if options.smoke else IMAGES:
        row, found = attack(images, options.rounds, 20 if options.smoke else STEPS)
        rows.append(row)
        print(table(rows[-1:], options.rounds).splitlines()[-1], flush=True)
        if images == SHOWN:
            pictures = found
    print(table(rows, options.rounds))
    if options.write and pictures:
        draw(rows, pictures, options.rounds, DOCS / "curious-server.png")


if __name__ == "__main__":
    main()
