"""`fedrelay attack`: run methods with and without an attack."""

from __future__ import annotations

import json as json_format
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from fedrelay.cli.output import CommandOutput
from fedrelay.cli.run import Seeds, compare_methods, with_seeds
from fedrelay.cli.settings import (
    ALL_FLAGS,
    Assignments,
    Json,
    Quiet,
    Tree,
    apply,
    examples,
    free_folder,
    takes_settings,
)
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Comparison, validate
from fedrelay.report.format import finite

if TYPE_CHECKING:  # imports torch, which would make --help slow
    from fedrelay.robustness.gan_attack_run import GanObservation

DEFAULT_METHODS = ("fedavg", "fedseq")
"""The methods of the paper's table."""

Methods = Annotated[list[str] | None, Argument(metavar="[METHOD…]", help="default: fedavg fedseq")]
_option = partial(Option, rich_help_panel="Attack")

app = typer.Typer(
    no_args_is_help=True,
    name="attack",
    help="Run methods with an attack and without it, and compare.",
    epilog=examples("fedrelay attack label-flip --alpha 100 --swap 3,8"),
)


@app.command(
    "label-flip",
    epilog=examples(
        "fedrelay attack label-flip --data fashion-mnist --alpha 100 --swap 0,6",
        "fedrelay attack label-flip fedseq --swap 0,2,3,5 --group-share 0.1,0.5 --seeds 1,2,3",
        "fedrelay attack label-flip --data cifar100 --alpha 100 --swap intra-sc --pairing random",
    ),
)
@takes_settings(*ALL_FLAGS)
def label_flip(
    methods: Methods = None,
    swap: Annotated[
        str,
        _option(
            metavar="0,6,…", help="classes whose labels attackers swap, or a list for CIFAR-100: extra-sc, intra-sc"
        ),
    ] = "",
    pairing: Annotated[str, _option(help="how classes are paired: fixed, random, or both")] = "fixed,random",
    group_share: Annotated[str, _option(metavar="L_S,…", help="share of groups that contain attackers")] = "0.5",
    client_share: Annotated[str, _option(metavar="L,…", help="share of attackers in these groups")] = "0.5",
    seeds: Seeds = None,
    quiet: Quiet = False,
    json: Json = False,
    *,
    settings: Assignments,
) -> None:
    """Run methods with and without clients that swap labels.

    Every method runs once without attack, and once per combination of pairing, group share and client share.

    The table shows the accuracy that each attack costs. This is a comparison: 'fedrelay resume' continues it.
    """
    attacks = [
        {"name": "label-flip", **_classes(swap), "pairing": paired, "group_share": groups, "client_share": clients}
        for paired, groups, clients in product(
            [word.strip() for word in pairing.split(",")],
            _shares("--group-share", group_share),
            _shares("--client-share", client_share),
        )
    ]
    entries: list[Tree] = []
    for method in methods or DEFAULT_METHODS:
        entries.append({"method": method, "label": f"{method} clean"})
        entries += [{"method": method, "label": _label(method, attack), "attack": attack} for attack in attacks]
    output = CommandOutput(quiet=quiet, json=json)
    compare_methods(output, "label-flip", {"methods": entries}, with_seeds(settings, seeds))


@app.command(
    "gan",
    epilog=examples(
        "fedrelay attack gan fedavg fedseq --data mnist --clients 100 --alpha 100 --attacker-epochs 20",
        "fedrelay attack gan fedseq --model cnn-s --attacker 7 --rounds 30 --seeds 1,2,3 --out runs/gan",
        "fedrelay attack gan --data cifar10 --features mymodule:inception",
    ),
)
@takes_settings(*ALL_FLAGS)
def gan(
    methods: Methods = None,
    attacker: Annotated[int, _option(help="the number of the attacking client")] = 0,
    attacker_epochs: Annotated[
        int, _option(min=1, help="epochs of the GAN over the attacker's own images per hop (E_a)")
    ] = 300,
    features: Annotated[
        str | None,
        _option(
            metavar="MODULE:FUNCTION",
            help="returns a network from images to features for the FID, such as Inception; "
            "default: a small network trained on the data",
        ),
    ] = None,
    seeds: Seeds = None,
    quiet: Quiet = False,
    json: Json = False,
    *,
    settings: Assignments,
) -> None:
    """Let one client train a GAN on the models it receives, to draw images of others.

    Writes the final drawings as PNG and all numbers as JSON. A larger FID means a weaker attack.

    The attacker does not change the run: the weights are those of 'fedrelay run'. This command cannot be resumed.
    """
    from fedrelay.experiment.comparison_runs import experiments
    from fedrelay.files import make_folder, write_atomically
    from fedrelay.report.terminal.attack_results import (
        HINT,
        HINT_OF_OWN_FEATURES,
        gan_attack_facts,
        gan_attack_table,
        unvisited_attackers,
    )
    from fedrelay.robustness.gan_attack_run import GanAttackResult, run_gan_attack
    from fedrelay.robustness.gan_attacker import save_image_grid
    from fedrelay.runtime.run_folder import RunFolder
    from fedrelay.user_code import call_function

    output = CommandOutput(quiet=quiet, json=json)
    chosen = apply({"methods": list(methods or DEFAULT_METHODS)}, with_seeds(settings, seeds))
    comparison = validate(Comparison, chosen)
    out = comparison.out or free_folder(f"gan-{Path(comparison.data.name).stem}")
    RunFolder.check(out)  # before anything is trained
    own = call_function(features) if features is not None else None
    if own is not None and not callable(own):
        raise SpecError(f"--features {features}: must return a network or a function, got {type(own).__name__}")
    results: dict[str, list[GanAttackResult]] = {}
    with output.showing_warnings():
        for entry, experiment in experiments(comparison):
            progress = partial(_print_progress, output, f"{entry.name}, seed {experiment.seed}")
            result = run_gan_attack(experiment, attacker, epochs=attacker_epochs, features=own, watch=progress)
            results.setdefault(entry.name, []).append(result)
    facts = gan_attack_facts(results)
    make_folder(out)
    for name, found in results.items():
        for result in found:
            if result.images is not None:
                seed = f"-seed-{result.result.experiment.seed}" if len(found) > 1 else ""
                save_image_grid(result.images, out / f"{name}{seed}.png")
    write_atomically(out / "results.json", f"{json_format.dumps(finite(facts), indent=1)}\n".encode())
    output.print(
        gan_attack_table(results, HINT if own is None else HINT_OF_OWN_FEATURES), "", f"  drawings and numbers: {out}"
    )
    for warning in unvisited_attackers(results):
        output.note(f"note: {warning}", "yellow")
    output.print_json(facts)


def _print_progress(output: CommandOutput, title: str, observation: GanObservation) -> None:
    accuracy = f"{100 * observation.accuracy:.1f} %"
    output.note(f"  {title}, round {observation.round}: the attacker received a model with accuracy {accuracy}")


def _label(method: str, attack: Tree) -> str:
    return f"{method} {attack['pairing']} {attack['group_share']:g} {attack['client_share']:g}"


def _classes(swap: str) -> Tree:
    """The settings for `0,6` or for the name of a list."""
    if not swap:
        raise SpecError("--swap: missing; name the classes whose labels are swapped, such as --swap 0,6")
    if not swap.replace(",", "").replace(" ", "").isdecimal():
        return {"swap_list": swap}
    return {"swap": [int(number) for number in swap.split(",") if number.strip()]}


def _shares(flag: str, text: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise SpecError(f"{flag}: must be numbers separated by commas, got {text!r}") from None
