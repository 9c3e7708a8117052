"""A whole federation on this machine, in which nearly everything dies once.

python examples/federation/demo.py [FOLDER]
python examples/federation/demo.py --smoke     one node, two rounds, nothing dies

A SuperLink with TLS, four nodes with different digits, `fedseq+scaffold`. One node is killed in the middle of a chain
and started again; then `fedrelay run` and the SuperLink are killed, and the run is resumed. Everything that was started
is ended by its own id, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
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

PATIENCE = 300
"""Seconds that anything may take on a busy machine."""

HERE = Path(__file__).parent


class Company:
    """All processes of the federation, each with a log in the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.address = f"127.0.0.1:{free_port()}"

    def fedrelay(self, *words: str) -> None:
        """Run a command to its end."""
        subprocess.run([sys.executable, "-m", "fedrelay.cli", *words], cwd=self.folder, check=True, timeout=PATIENCE)

    def start(self, name: str, *words: str) -> None:
        """Start a command that stays."""
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "fedrelay.cli", *words]
            self.running[name] = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)

    def start_superlink(self) -> None:
        """TLS, and the keys of the folder."""
        self.start("superlink", "superlink", "server", "--port", self.address.partition(":")[2])

    def start_node(self, name: str) -> None:
        """A node with its own samples."""
        trust = ("--key", f"{name}.key", "--ca", "server/ca.pem", "--superlink", self.address)
        self.start(name, "node", "--data", f"data/{name}.npz", *trust)

    def kill(self, name: str) -> None:
        """As if the machine had lost power."""
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def end(self) -> None:
        """Send everybody home, nodes first."""
        for name in sorted(self.running, key=lambda name: name == "superlink"):
            self.running[name].send_signal(signal.SIGTERM)
        for process in self.running.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def say(words: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"[{time.strftime('%H:%M:%S')}] {words}\n")
    sys.stdout.flush()


def until(happened: Callable[[], bool], what: str) -> None:
    """Wait, but not for ever."""
    began = time.monotonic()
    while not happened():
        if time.monotonic() - began > PATIENCE:
            raise SystemExit(f"waited {PATIENCE} s in vain until {what}")
        time.sleep(0.2)


def lines(file: Path) -> list[dict[str, object]]:
    """The whole lines of a file that is being written."""
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.is_file() else []


def rounds(run: Path) -> int:
    """How many rounds are done."""
    return len(lines(run / "metrics.jsonl"))


def set_up(company: Company, owners: Sequence[str]) -> tuple[str, ...]:
    """Start a SuperLink and a node for each owner; gives back the words that run the example there."""
    folder = company.folder
    say("certificates, keys and data")
    company.fedrelay("certificates", "server", "-q")
    make_data(folder / "data")
    for name in owners:
        company.fedrelay("key", f"{name}.key", "-q")
        shutil.copy(folder / f"{name}.key.pub", folder / "server" / "nodes" / f"{name}.pub")
    nodes = ", ".join(f"{name} {OWNERS[name]}" for name in owners)
    say(f"a SuperLink on {company.address}, and these nodes: {nodes}")
    company.start_superlink()
    for name in owners:
        company.start_node(name)
    until(lambda: "may come in" in (folder / "superlink.log").read_text(), "the SuperLink listens")
    for name in owners:
        until(lambda name=name: "ready" in (folder / f"{name}.log").read_text(), f"{name} is there")
    engine = ("--set", f"engine.superlink={company.address}")
    return ("run", str(HERE.resolve() / "run.yaml"), "--out", "run", *engine)


def play_smoke(company: Company) -> None:
    """A short run in which nothing goes wrong."""
    run = set_up(company, ("north",))
    company.fedrelay(*run, "--rounds", "2", "-q")
    say(f"{rounds(company.folder / 'run')} rounds are done")


def play(company: Company) -> None:
    """The story."""
    run = company.folder / "run"
    command = set_up(company, tuple(OWNERS))
    company.fedrelay("nodes", "server", "--superlink", company.address)
    say("fedseq+scaffold begins")
    company.start("run", *command)
    until(lambda: rounds(run) >= 3, "three rounds are done")
    say("south is killed in the middle of a chain, and started again")
    company.kill("south")
    until(lambda: bool(lines(run / "events.jsonl")), "the chain has gone on without it")
    company.start_node("south")
    now = rounds(run)
    until(lambda: rounds(run) >= now + 4, "four more rounds are done")
    say(f"after round {rounds(run)}: fedrelay run and the SuperLink are killed")
    company.kill("run")
    company.kill("superlink")
    say("the SuperLink is started again, and the run is resumed")
    company.start_superlink()
    company.fedrelay("resume", "run")
    result = json.loads((run / "result.json").read_text())
    for event in lines(run / "events.jsonl"):
        say(f"round {event['round']}, {event.get('node', 'server')}: {event['what']}, {event['done']}")
    accuracy, overhead = 100 * result["accuracy"], result["hop_overhead"]
    say(f"accuracy {accuracy:.1f} % after {result['rounds']} rounds; {overhead:.2f} s a hop beside training")


def main() -> None:
    """In a folder that was asked for, or in one that goes when it is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", help="where everything is kept")
    parser.add_argument("--smoke", action="store_true", help="only see that it works")
    options = parser.parse_args()
    if importlib.util.find_spec("flwr") is None:
        say("Flower is not installed: there are no nodes without it (pip install 'fedrelay[flower]')")
        return
    with tempfile.TemporaryDirectory(prefix="federation-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        company = Company(folder)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that nobody is left behind
        try:
            (play_smoke if options.smoke else play)(company)
        except KeyboardInterrupt:
            say("stopped")
        finally:
            company.end()


if __name__ == "__main__":
    main()
