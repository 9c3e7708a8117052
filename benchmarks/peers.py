"""Time per client update: FedRelay against Flower, pfl, NVFlare and bare PyTorch, on one machine.

    .venv/bin/python benchmarks/peers.py              print the tables (three quarters of an hour)
    .venv/bin/python benchmarks/peers.py --quick      fewer rounds and repetitions, as a check
    .venv/bin/python benchmarks/peers.py --write      also write docs/peers.md
    .venv/bin/python benchmarks/peers.py --nvflare    include NVFlare's cyclic workflow
    .venv/bin/python benchmarks/peers.py --smoke      run FedRelay and bare PyTorch once, for a few rounds;
                                                      with FEDRELAY_THOROUGH=1, each installed framework

All frameworks train the same model on the same data (`peers/workload.py`). They take turns, each time in a new process,
so that other load on the machine does not hit only one of them. Peers have their own virtual environments in
`benchmarks/.venvs/`, which are created if missing. Do not use the machine for anything else meanwhile.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peers import table
from peers.environments import ENVIRONMENTS, Environment, own_versions
from peers.processes import ContenderError, measure, measure_in_copy
from peers.workload import CASES
from real_networks import NETWORKS
from real_networks import WHAT_IS_COMPARED as NETWORKS_COMPARED
from real_networks import measured_table as table_of_networks

SCRIPTS = Path(__file__).parent / "peers"
PAGE = Path(__file__).parent.parent / "docs" / "peers.md"
QUICK = 4
"""A quick run has a quarter of the rounds."""
SMOKE_LOSS = 1.57
"""The loss of the dense network after the warm-up; 2.43 before."""
SAME_LOSS = 0.01
"""How much the losses after the warm-up may differ: clients are sampled and samples shuffled differently."""


@dataclass(frozen=True)
class Contender:
    """A script, the interpreter that runs it, and how many rounds of each case it is timed for."""

    name: str
    script: str
    rounds: Mapping[str, int]
    variant: str | None = None
    environment: Environment | None = None
    launcher: tuple[str, ...] = ()

    def command(self, case: str, rounds: int) -> list[str]:
        """What is run for one measurement."""
        python = self.environment.python if self.environment else sys.executable
        return [str(python), *self.launcher, str(SCRIPTS / self.script), *self.words(case, rounds)]

    def words(self, case: str, rounds: int) -> list[str]:
        """The arguments of the script."""
        return [case, str(rounds), *([self.variant] if self.variant else [])]


def torchrun(processes: int) -> tuple[str, ...]:
    """PyTorch's own launcher, by which pfl's simulation uses several cores."""
    return ("-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={processes}")


FLOWER, PFL, NVFLARE = (ENVIRONMENTS[name] for name in ("flower", "pfl", "nvflare"))
PFL_ROUNDS = {"conv": 40, "dense": 100, "dense-100": 20}
PROGRAMS = (
    Contender(table.FEDRELAY, "fedrelay_run.py", {"conv": 60, "dense": 500, "dense-100": 80}),
    Contender(table.BARE, "bare.py", {"conv": 60, "dense": 200, "dense-100": 20}, "all"),
    Contender(table.BARE_ONE, "bare.py", {"conv": 30, "dense": 100, "dense-100": 10}, "one"),
    Contender(table.FLOWER, "flower_run.py", {"conv": 20, "dense": 20}, environment=FLOWER),
    Contender(table.PFL[0], "pfl_run.py", PFL_ROUNDS, environment=PFL, launcher=torchrun(os.cpu_count() or 1)),
    Contender(table.PFL[1], "pfl_run.py", PFL_ROUNDS, environment=PFL),
    Contender(table.PFL_BY_HAND, "pfl_run.py", {"conv": 40}, "channels-last", PFL, torchrun(os.cpu_count() or 1)),
    Contender(table.CHAINS, "chains_run.py", {"conv": 6}, "two"),
    Contender(table.ONE_WORKER, "chains_run.py", {"conv": 4}, "one"),
    Contender(table.NVFLARE, "nvflare_run.py", {"conv": 8}, environment=NVFLARE),
)


@dataclass
class Race:
    """What has been measured so far, and who has dropped out."""

    repeats: int
    quick: bool
    times: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    firsts: dict[str, dict[str, Any]] = field(default_factory=dict)
    out: dict[str, str] = field(default_factory=dict)
    """Why."""

    def run(self, contenders: Sequence[Contender]) -> None:
        """All repetitions: one after another, each with every case, each case with every contender."""
        turns = [(case, each) for case in CASES for each in contenders if case in each.rounds]
        for repeat in range(1, self.repeats + 1):
            for number, (case, contender) in enumerate(turns, start=1):
                if contender.name not in self.out:
                    where = f"repetition {repeat}/{self.repeats}, {number}/{len(turns)}"
                    say(f"{where}: {contender.name}, {case} …", end=" ")
                    self.turn(case, contender)

    def turn(self, case: str, contender: Contender) -> None:
        """One measurement; a peer that fails twice drops out, FedRelay may not."""
        rounds = max(2, contender.rounds[case] // (QUICK if self.quick else 1))
        try:
            found = self.attempt(case, contender.command(case, rounds))
        except ContenderError as error:
            if contender.environment is None:
                raise SystemExit(f"\n{contender.name}, {case}: {error}") from None
            say(f"drops out: {error}")
            self.out[contender.name] = f"{contender.name} ({case}: {error})"
            return
        say(f"{table.brief(1000 * found['seconds'])} ms")
        self.times.setdefault((contender.name, case), []).append(found["seconds"])
        if contender.name == table.CHAINS:
            self.times.setdefault((table.HANDOVER, case), []).append(found["handover"])

    def attempt(self, case: str, command: Sequence[str]) -> dict[str, Any]:
        """Measure, a second time where the first fails: nobody should lose to a port that was taken."""
        for last in (False, True):
            try:
                found = measure(command)
                self.check(case, found)
                break
            except ContenderError as error:
                if last:
                    raise
                say(f"once more ({error}) …", end=" ")
        return found

    def check(self, case: str, found: Mapping[str, Any]) -> None:
        """Everybody must do the work of the first: the same data and weights, and as much learned from them."""
        first = self.firsts.setdefault(case, dict(found))
        if found["work"] != first["work"]:
            raise ContenderError("trained other data or other first weights than the rest")
        if "loss" in found and abs(found["loss"] / first["loss"] - 1) > SAME_LOSS:
            raise ContenderError(f"came to a loss of {found['loss']:.4f} instead of {first['loss']:.4f}")


def entered(wanted: argparse.Namespace, versions: dict[str, str]) -> Iterator[Contender]:
    """The contenders that take part; makes environments that are missing and notes the versions in use."""
    for environment in ENVIRONMENTS.values():
        mine = [each for each in PROGRAMS if each.environment is environment]
        if environment is NVFLARE and not wanted.nvflare:
            say("NVFlare is left out; --nvflare brings it in")
            continue
        found = environment.versions()
        if found is None:
            say(f"making {environment.python.parent.parent} with {' and '.join(environment.requirements)} …")
            problem = environment.install()
            found = environment.versions()
            if found is None:
                say(f"{environment.name} is left out: it cannot be installed here ({problem or 'it does not import'})")
                continue
        versions |= found
        yield from mine


def smoke() -> None:
    """Run every script once, on the smallest case; peers, which take minutes, only in thorough tests."""
    case = CASES["dense"]
    race = Race(1, quick=True, firsts={case.name: {"work": case.fingerprint(), "loss": SMOKE_LOSS}})
    scripts: dict[str, Contender] = {}
    for each in PROGRAMS:
        scripts.setdefault(each.script, each)
    for contender in scripts.values():
        if contender.environment is not None:
            if not os.environ.get("FEDRELAY_THOROUGH"):
                print(f"{contender.name}: left out without FEDRELAY_THOROUGH")
                continue
            if contender.environment.versions() is None:
                print(f"{contender.name}: not installed here, left out")
                continue
            found = measure(contender.command(case.name, rounds=2))
        else:
            words = contender.words(case.name, rounds=2)
            found = measure_in_copy(SCRIPTS / contender.script, words)
        race.check(case.name, found)
        print(f"{contender.name}: {table.brief(1000 * found['seconds'])} ms per client update")


def page(race: Race, versions: Mapping[str, str], networks: str) -> str:
    """The Markdown page, with the table of networks that people train."""
    titles = {case.name: case.title for case in CASES.values()}
    software = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"""# Speed against peers

Written by `.venv/bin/python benchmarks/peers.py --write`. A client update is one epoch of five SGD steps of batch 20
over 100 samples; a round takes 10 or 100 of 100 clients. Times are whole rounds (sampling, handover, training,
aggregation; no evaluation, no start-up) divided by their client updates. All frameworks train the same network from the
same weights on the same data; a fingerprint, the number of steps and the loss after three rounds are checked. They take
turns, each time in a new process. Shown are the median and, in brackets, the minimum and maximum of the repetitions.
Ratios are taken within each repetition.

- machine: {os.cpu_count()} cores, {cpu_model()}
- software: {software}
- repetitions: {race.repeats}{", quick: a quarter of the rounds" if race.quick else ""}
- dropped out: {"; ".join(race.out.values()) or "none"}

{table.goals_table(race.times)}

{table.times_table(race.times, titles)}

The convolutional network has two convolutions (8 and 16 channels, 3×3), each with ReLU and pooling, and dense layers of
64 and 10 for images of 28×28; the dense one has layers of 64 and 10 for 64 features.

What to know about the comparison:

- FedRelay runs through `fedrelay.run` with its default settings, including merging and records. Only with 100 clients a
  round, `engine.lanes` is set to the number of clients divided by the number of cores.
- Bare PyTorch is a baseline: training loops in one process per core, without server or handover, with channels-last
  weights and the same memory settings as FedRelay's workers.
- Flower runs its simulation on Ray with one CPU per client and its message API. Model and data stay in the actors. Its
  rounds contain waits of a tenth of a second, so its time per update falls with larger rounds.
- pfl runs with and without one process per core; the faster counts. It cuts its batches once and never shuffles them.
- NVFlare's hops pass messages between processes and contain waits of about half a second. The time is that of its
  simulator, not of a federation over a network.
- Peers train the network as their users would write it. Channels-last memory, keeping freed memory and batching small
  models are part of FedRelay. One row shows what pfl gains if its user sets channels-last by hand.
- The handover is all CPU time between the last step at one client and the first at the next: reports, a check for
  non-finite weights, two copies of the model, and shuffling and gathering the next client's samples.

## Networks that people train

{NETWORKS_COMPARED}

{networks}
"""


def cpu_model() -> str:
    """What the processor calls itself."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def say(text: str, end: str = "\n") -> None:
    """A line of progress."""
    print(text, end=end, file=sys.stderr, flush=True)


def positive(text: str) -> int:
    """A number of repetitions."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive whole number, got {text!r}")
    return int(text)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the rounds, two repetitions")
    parser.add_argument("--repeats", type=positive, help="number of repetitions (default 5)")
    parser.add_argument("--nvflare", action="store_true", help="also measure NVFlare's cyclic workflow")
    parser.add_argument("--smoke", action="store_true", help="run a few rounds once; print no table")
    parser.add_argument("--write", nargs="?", type=Path, const=PAGE, metavar="FILE", help="write docs/peers.md")
    return parser.parse_args(given)


def main() -> None:
    """Measure, judge, print."""
    wanted = arguments()
    if wanted.smoke:
        smoke()
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGINT may be ignored, as in the background
    if os.getloadavg()[0] > 0.5:
        say(f"the machine is busy (load {os.getloadavg()[0]:.1f}): times will be long and noisy")
    race = Race(wanted.repeats or (2 if wanted.quick else 5), wanted.quick)
    versions = own_versions()
    try:
        ours = [each for each in PROGRAMS if each.environment is None]
        theirs = list(entered(wanted, versions))
        networks = table_of_networks(NETWORKS, turns=race.repeats)
        race.run(sorted(ours + theirs, key=PROGRAMS.index))
    except KeyboardInterrupt:
        say("\nstopped; nothing is left running")
        sys.exit(130)
    text = page(race, versions, networks)
    print(text)
    if wanted.write:
        wanted.write.write_text(text)
        say(f"wrote {wanted.write}")


if __name__ == "__main__":
    main()
