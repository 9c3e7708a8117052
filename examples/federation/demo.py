"""A whole federation on this machine; every part of it is killed once.

python examples/federation/demo.py [FOLDER]
python examples/federation/demo.py --sealed    the server cannot read the models between nodes
python examples/federation/demo.py --smoke     one node, two rounds, nothing is killed

A SuperLink with TLS, four nodes with different digits, `fedseq+scaffold`. One node is killed in the middle of a chain
and started again; then `fedrelay run` and the SuperLink are killed, and the run is resumed. All processes
are ended by their own id, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from make_data import OWNERS
from make_data import main as make_data

from fedrelay.cli import main as fedrelay

PATIENCE = 900
"""Seconds that a step may take on a busy machine."""

HERE = Path(__file__).parent


class Processes:
    """All processes of the federation, each with a log in the folder."""

    def __init__(self, folder: Path, *, sealed: bool) -> None:
        self.folder, self.sealed = folder, sealed
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.address = f"127.0.0.1:{free_port()}"

    def fedrelay(self, *words: str) -> None:
        """Run a command in this process."""
        with contextlib.chdir(self.folder):
            if fedrelay(words):
                raise SystemExit(f"fedrelay {' '.join(words)} failed")

    def start(self, name: str, *words: str) -> None:
        """Start a command in the background."""
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "fedrelay.cli", *words]
            self.running[name] = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)

    def start_superlink(self) -> None:
        self.start("superlink", "superlink", "server", "--port", self.address.partition(":")[2])

    def start_node(self, name: str) -> None:
        trust = ("--key", f"{name}.key", "--ca", "server/ca.pem", "--superlink", self.address)
        pinned = ("--roster", "roster.yaml") if self.sealed else ()
        self.start(name, "node", "--data", f"data/{name}.npz", *trust, *pinned)

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL."""
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def end(self) -> None:
        """End all processes, nodes first."""
        for name in sorted(self.running, key=lambda name: name == "superlink"):
            self.running[name].send_signal(signal.SIGTERM)
        for process in self.running.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"[{time.strftime('%H:%M:%S')}] {text}\n")
    sys.stdout.flush()


def until(happened: Callable[[], bool], what: str) -> None:
    """Wait until something has happened, at most `PATIENCE` seconds."""
    began = time.monotonic()
    while not happened():
        if time.monotonic() - began > PATIENCE:
            raise SystemExit(f"after {PATIENCE} s still not true: {what}")
        time.sleep(0.2)


def lines(file: Path) -> list[dict[str, object]]:
    """The complete lines of a file that is being written."""
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.is_file() else []


def rounds(run: Path) -> int:
    """How many rounds have finished."""
    return len(lines(run / "metrics.jsonl"))


def set_up(processes: Processes, owners: Sequence[str]) -> tuple[str, ...]:
    """Start a SuperLink and a node for each owner. Returns the command that runs the example there."""
    folder = processes.folder
    say("certificates, keys and data")
    processes.fedrelay("certificates", "server", "-q")
    make_data(folder / "data")
    for name in owners:
        processes.fedrelay("key", f"{name}.key", "-q")
        shutil.copy(folder / f"{name}.key.pub", folder / "server" / "nodes" / f"{name}.pub")
    if processes.sealed:
        say("a roster of the nodes' keys, which all owners pin")
        processes.fedrelay("roster", "server", "roster.yaml")
    nodes = ", ".join(f"{name} {OWNERS[name]}" for name in owners)
    say(f"a SuperLink on {processes.address}, and these nodes: {nodes}")
    processes.start_superlink()
    for name in owners:
        processes.start_node(name)
    until(lambda: "is admitted" in (folder / "superlink.log").read_text(), "the SuperLink listens")
    for name in owners:
        until(lambda name=name: "ready" in (folder / f"{name}.log").read_text(), f"{name} is ready")
    settings = ["--set", f"engine.superlink={processes.address}"]
    if processes.sealed:
        settings += ["--set", "route.handover=sealed"]
    return ("run", str(HERE.resolve() / "run.yaml"), "--out", "run", *settings)


def play_smoke(processes: Processes) -> None:
    """A short run without faults."""
    run = set_up(processes, ("north",))
    processes.fedrelay(*run, "--rounds", "2", "-q")
    say(f"{rounds(processes.folder / 'run')} rounds are done")


def play(processes: Processes) -> None:
    """The whole demonstration."""
    run = processes.folder / "run"
    command = set_up(processes, tuple(OWNERS))
    processes.fedrelay("nodes", "server", "--superlink", processes.address)
    say(f"starting fedseq+scaffold{', sealed' if processes.sealed else ''}")
    processes.start("run", *command)
    until(lambda: rounds(run) >= 3, "three rounds are done")
    say("killing south in the middle of a chain, then starting it again")
    processes.kill("south")
    until(lambda: bool(lines(run / "events.jsonl")), "the chain has continued without it")
    processes.start_node("south")
    now = rounds(run)
    until(lambda: rounds(run) >= now + 4, "four more rounds are done")
    say(f"after round {rounds(run)}: killing fedrelay run and the SuperLink")
    processes.kill("run")
    processes.kill("superlink")
    say("starting the SuperLink again and resuming the run")
    processes.start_superlink()
    processes.fedrelay("resume", "run")
    result = json.loads((run / "result.json").read_text())
    for event in lines(run / "events.jsonl"):
        say(f"round {event['round']}, {event.get('node', 'server')}: {event['what']}, {event['done']}")
    accuracy, overhead = 100 * result["accuracy"], result["hop_overhead"]
    say(f"accuracy {accuracy:.1f} % after {result['rounds']} rounds; {overhead:.2f} s of overhead per hop")


def main() -> None:
    """Run in the given folder, or in a temporary one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", help="keep all files here")
    parser.add_argument("--sealed", action="store_true", help="seal models, so that the server cannot read them")
    parser.add_argument("--smoke", action="store_true", help="run a short check only")
    options = parser.parse_args()
    if options.smoke and options.sealed:
        parser.error("--sealed needs several nodes, --smoke has one; use one of them")
    if importlib.util.find_spec("flwr") is None:
        say("Flower is not installed, so there are no nodes (pip install 'fedrelay[flower]')")
        return
    with tempfile.TemporaryDirectory(prefix="federation-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        processes = Processes(folder, sealed=options.sealed)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that no process is left behind
        try:
            (play_smoke if options.smoke else play)(processes)
        except KeyboardInterrupt:
            say("stopped")
        finally:
            processes.end()


if __name__ == "__main__":
    main()
