"""`fedrelay attack`: what methods withstand."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrelay.cli.output import CommandOutput
from fedrelay.cli.run import run_comparison_of, with_seeds
from fedrelay.cli.settings import ALL_FLAGS, Assignments, Json, Quiet, apply, examples, free_folder, takes_settings
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Comparison, validate
from fedrelay.report.format import finite

if TYPE_CHECKING:  # imports torch, which would make --help slow
    from fedrelay.robustness.gan_attack_run import GanObservation

DEFAULT_METHODS = ("fedavg", "fedseq")
"""Those of the paper's table."""

Seeds = Annotated[
    str | None,
    typer.Option("--seeds", metavar="1,2,…", help="one run of everything for each", rich_help_panel="Training"),
]


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)
    group.command(
        "label-flip",
        epilog=examples(
            "fedrelay attack label-flip --data fashion-mnist --alpha 100 --swap 0,6",
            "fedrelay attack label-flip fedseq --swap 0,2,3,5 --group-share 0.1,0.5 --seeds 1,2,3",
            "fedrelay attack label-flip --data cifar100 --alpha 100 --swap intra-sc --pairing random",
        ),
    )(label_flip)
    group.command(
        "gan",
        epilog=examples(
            "fedrelay attack gan fedavg fedseq --data mnist --clients 100 --alpha 100 --epochs-of-spy 20",
            "fedrelay attack gan fedseq --model cnn-s --spy 7 --rounds 30 --seeds 1,2,3 --out runs/spy",
            "fedrelay attack gan --data cifar10 --features mymodule:inception",
        ),
    )(gan)
    app.add_typer(
        group,
        name="attack",
        help="Run methods under attack, beside the same methods without.",
        epilog=examples("fedrelay attack label-flip --alpha 100 --swap 3,8"),
    )


@takes_settings(*ALL_FLAGS)
def label_flip(
    methods: Annotated[
        list[str] | None, typer.Argument(metavar="[METHOD…]", help="methods to attack; default fedavg fedseq")
    ] = None,
    swap: Annotated[
        str,
        typer.Option(
            "--swap",
            metavar="0,6,…",
            help="classes whose labels attackers exchange, or a list of CIFAR-100: extra-sc, intra-sc",
            rich_help_panel="Attack",
        ),
    ] = "",
    pairing: Annotated[
        str,
        typer.Option(help="who is exchanged with whom: fixed, random, or both", rich_help_panel="Attack"),
    ] = "fixed,random",
    group_share: Annotated[
        str, typer.Option(metavar="L_S,…", help="share of the groups with attackers", rich_help_panel="Attack")
    ] = "0.5",
    client_share: Annotated[
        str, typer.Option(metavar="L,…", help="share of attackers in such a group", rich_help_panel="Attack")
    ] = "0.5",
    seeds: Seeds = None,
    quiet: Quiet = False,
    json: Json = False,
    *,
    settings: Assignments,
) -> None:
    """Let some clients exchange labels, and compare with the same runs without.

    Every method runs once without attack and once for every combination of pairing, group share and client share; the
    table says what each lost. An interrupted attack is continued with 'fedrelay resume' like a comparison.
    """
    attacks = [
        {"name": "label-flip", **_classes(swap), "pairing": paired, "group_share": groups, "client_share": clients}
        for paired, groups, clients in product(
            [word.strip() for word in pairing.split(",")],
            _shares("--group-share", group_share),
            _shares("--client-share", client_share),
        )
    ]
    entrants = [entrant for method in methods or DEFAULT_METHODS for entrant in _entrants(method, attacks)]
    run_comparison_of({"methods": entrants}, settings, seeds, "label-flip", quiet=quiet, json=json)


@takes_settings(*ALL_FLAGS)
def gan(
    methods: Annotated[
        list[str] | None, typer.Argument(metavar="[METHOD…]", help="methods to spy on; default fedavg fedseq")
    ] = None,
    spy: Annotated[int, typer.Option(help="the client that looks", rich_help_panel="Attack")] = 0,
    epochs_of_spy: Annotated[
        int, typer.Option(min=1, help="E_a, epochs over its own images at each visit", rich_help_panel="Attack")
    ] = 300,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="gives a network from images to features, such as Inception with weights of your own, for the FID; "
            "default: a small one trained on the data",
            rich_help_panel="Attack",
        ),
    ] = None,
    seeds: Seeds = None,
    quiet: Quiet = False,
    json: Json = False,
    *,
    settings: Assignments,
) -> None:
    """Let one client learn to draw others' images from the models it receives; the run itself is honest.

    Writes what it draws in the end as PNG and all numbers as JSON, with the SHA-256 of the weights, which are those of
    'fedrelay run' with the same settings. A larger FID is a weaker attack. A run with a spy is not resumable.
    """
    from fedrelay.experiment.comparison_runs import experiments
    from fedrelay.files import make_folder, write_atomically
    from fedrelay.report.terminal.attacks import HINT, HINT_OF_OWN_FEATURES, spy_facts, spy_table, unvisited_spies
    from fedrelay.robustness.gan_attack import contact_sheet
    from fedrelay.robustness.gan_attack_run import GanAttackResult, run_gan_attack
    from fedrelay.runtime.store import RunFolder
    from fedrelay.user_code import call_function

    screen = CommandOutput(quiet=quiet, json=json)
    chosen = apply({"methods": list(methods or DEFAULT_METHODS)}, with_seeds(settings, seeds))
    comparison = validate(Comparison, chosen)
    out = comparison.out or free_folder(f"gan-{Path(comparison.data.name).stem}")
    RunFolder.check(out)  # before anything is trained
    own = call_function(features) if features is not None else None
    if own is not None and not callable(own):
        raise SpecError(f"--features {features}: must give a network or a function, got {type(own).__name__}")
    hauls: dict[str, list[GanAttackResult]] = {}
    with screen.listening():
        for entrant, experiment in experiments(comparison):
            title = f"{entrant.name}, seed {experiment.seed}"
            haul = run_gan_attack(
                experiment, spy, epochs=epochs_of_spy, features=own, watch=partial(_tell, screen, title)
            )
            hauls.setdefault(entrant.name, []).append(haul)
    facts = spy_facts(hauls)
    make_folder(out)
    for name, found in hauls.items():
        for haul in found:
            if haul.drawings is not None:
                seed = f"-seed-{haul.result.experiment.seed}" if len(found) > 1 else ""
                contact_sheet(haul.drawings, out / f"{name}{seed}.png")
    write_atomically(out / "results.json", f"{json_format.dumps(finite(facts), indent=1)}\n".encode())
    screen.show(spy_table(hauls, HINT if own is None else HINT_OF_OWN_FEATURES), "", f"  drawings and numbers: {out}")
    for remark in unvisited_spies(hauls):
        screen.note(f"note: {remark}", "yellow")
    screen.emit(facts)


def _tell(screen: CommandOutput, title: str, glimpse: GanObservation) -> None:
    screen.note(f"  {title}, round {glimpse.round}: a model of {100 * glimpse.accuracy:.1f} %")


def _entrants(method: str, attacks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A method without attack, then under each of the attacks."""
    return [
        {"method": method, "label": f"{method} clean"},
        *({"method": method, "label": _label(method, each), "attack": each} for each in attacks),
    ]


def _label(method: str, attack: dict[str, Any]) -> str:
    return f"{method} {attack['pairing']} {attack['group_share']:g} {attack['client_share']:g}"


def _classes(swap: str) -> dict[str, Any]:
    """`0,6` or the name of a list, as settings."""
    if not swap:
        raise SpecError("--swap: name the classes whose labels are exchanged, such as --swap 0,6")
    if not swap.replace(",", "").replace(" ", "").isdecimal():
        return {"swap_list": swap}
    return {"swap": [int(number) for number in swap.split(",") if number.strip()]}


def _shares(flag: str, text: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise SpecError(f"{flag}: must be numbers separated by commas, got {text!r}") from None
