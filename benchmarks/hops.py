"""The overhead of a hop in a real federation, part by part.

    .venv/bin/python benchmarks/hops.py                   print the table
    .venv/bin/python benchmarks/hops.py --hops 200        measure longer
    .venv/bin/python benchmarks/hops.py --megabytes 8     a larger model
    .venv/bin/python benchmarks/hops.py --before OLD      also measure the clone in the folder OLD, alternately
    .venv/bin/python benchmarks/hops.py --smoke           a few hops of a small model

One model goes back and forth between two nodes. Server, SuperLink and nodes are processes on this machine, which talk
over TLS on the loopback address. The overhead of a hop is the time from one request to the next, less the training.
Medians of the parts need not add up to the median of the whole. Other load on the machine makes everything longer, so
the table has calls and CPU time, too, and says how busy the machine was.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from loopback_nodes import loopback_nodes

NODES = ("north", "south")
SAMPLES, FEATURES, CLASSES = 20, 784, 10
BYTES_PER_UNIT = 4 * (FEATURES + 1 + CLASSES)
"""Bytes of the model for each unit of its hidden layer."""

WARM_UP = 6
"""Hops that are not counted: the first ones build models and open connections."""

REPEATS = 3
"""With `--before`: how often both are measured, in turn."""

PARTS = (
    "build the request",
    "send the request",
    "until the node asks for it",
    "fetch the request",
    "unpack, pack and sign at the node",
    "send the reply",
    "until the server asks for it",
    "fetch the reply",
    "check the reply",
    "until the next request of the round",
)
BETWEEN_ROUNDS = "between rounds: merge, evaluate, record"
OVERHEAD, TRAINING = "overhead of a hop", "training"
CALLS, CPU = "calls of the SuperLink", "CPU of {}, ms"

Span = tuple[float, float]
"""Begin and end, by a clock that all processes share."""

Spans = dict[str, list[Span]]
Row = dict[str, float]
"""Part → seconds; the parts that a hop does not have are missing."""


class Recorder:
    """Wraps functions and remembers when they were called."""

    def __init__(self) -> None:
        self.spans: Spans = {}

    def wrap(self, owner: Any, name: str, label: str, counts: Callable[[Any], bool] = lambda _: True) -> None:
        """Record the calls of a function, if their results count."""
        function, spans = getattr(owner, name), self.spans.setdefault(label, [])

        @functools.wraps(function)
        def recorded(*values: Any, **options: Any) -> Any:
            began = time.monotonic()
            result = function(*values, **options)
            if counts(result):
                spans.append((began, time.monotonic()))
            return result

        setattr(owner, name, recorded)

    def wrap_calls(self) -> None:
        import httpx

        self.wrap(httpx.Client, "send", "call")


def recorder_of_server() -> Recorder:
    from flwr.supercore.runtime import RuntimeHttpClient

    from fedrelay.engines.flower.reply_signatures import ReplyVerifier
    from fedrelay.engines.flower.server.dispatcher import Dispatcher, Request
    from fedrelay.engines.flower.wire.server_side_connection import ServerSideConnection

    found = Recorder()
    initialize, spans = Request.__init__, found.spans.setdefault("build", [])

    def with_recorded_build(self: Request, *values: Any, **options: Any) -> None:
        initialize(self, *values, **options)
        build = self.build

        def recorded() -> Any:
            began = time.monotonic()
            message = build()
            if message.header["kind"] == "hop":
                spans.append((began, time.monotonic()))
            return message

        self.build = recorded

    Request.__init__ = with_recorded_build  # type: ignore[method-assign]
    found.wrap(ServerSideConnection, "send", "send")
    found.wrap(RuntimeHttpClient, "PullMessages", "pull", lambda reply: len(reply.messages_list) > 0)
    found.wrap(ReplyVerifier, "check", "verify")
    found.wrap(Dispatcher, "poll_once", "poll", lambda finished: len(finished) > 0)
    found.wrap_calls()
    return found


def serve_with_recorder(folder: Path, words: Sequence[str]) -> int:
    """A node that writes down when it did what, after it has ended."""
    from flwr.supernode.fleet_http_client import FleetHttpClient

    from fedrelay.cli import main as fedrelay
    from fedrelay.engines.flower.node.service import NodeService
    from fedrelay.engines.flower.wire.node_side_connection import NodeSideConnection
    from fedrelay.local.hop_runner import HopRunner

    found = Recorder()
    found.wrap(FleetHttpClient, "PullMessages", "pull", lambda request: len(request.messages_list) > 0)
    found.wrap(NodeSideConnection, "receive", "receive", lambda request: request is not None)
    found.wrap(NodeService, "respond", "respond")
    found.wrap(HopRunner, "run", "train")
    found.wrap(NodeSideConnection, "reply", "reply")
    found.wrap_calls()
    code = fedrelay(list(words))
    (folder / f"{os.getpid()}.json").write_text(json.dumps(found.spans))
    return code


def within(spans: Sequence[Span], window: Span) -> list[Span]:
    """Those that begin in a window."""
    return [span for span in spans if window[0] <= span[0] < window[1]]


def row_of(window: Span, server: Spans, node: Spans, *, ends_round: bool) -> Row:
    """The parts of the hop whose request, and the one after it, are built at the ends of the window."""
    [(asked, built)], [(_, sent)] = within(server["build"], window), within(server["send"], window)
    [(pulled, _)], [(_, received)] = within(node["pull"], window), within(node["receive"], window)
    [(_, answered)], [(_, replied)] = within(node["respond"], window), within(node["reply"], window)
    [(fetching, _)], [(checking, _)] = within(server["pull"], window), within(server["verify"], window)
    accepted = next(end for _, end in server["poll"] if end > checking)
    trained = sum(end - begin for begin, end in within(node["train"], window))
    last = BETWEEN_ROUNDS if ends_round else PARTS[-1]
    ends = (built, sent, max(sent, pulled), received, answered, replied, max(replied, fetching), checking, accepted)
    begins = (asked, built, sent, max(sent, pulled), received, answered, replied, max(replied, fetching), checking)
    row = {part: end - begin for part, begin, end in zip(PARTS, begins, ends, strict=False)}
    row[PARTS[4]] -= trained
    return row | {last: window[1] - accepted, TRAINING: trained, OVERHEAD: window[1] - window[0] - trained}


def rows_of(server: Spans, nodes: Sequence[Spans], hops: int) -> list[Row]:
    """The hops that count, each with its parts."""
    begins = [begin for begin, _ in server["build"]]
    merged = {label: sorted(span for node in nodes for span in node[label]) for label in nodes[0]}
    numbers = range(len(begins) - 1 - hops, len(begins) - 1)
    return [
        row_of((begins[number], begins[number + 1]), server, merged, ends_round=number % len(NODES) == 1)
        for number in numbers
    ]


def cpu_seconds(process: int) -> float:
    """The CPU time that a process has used so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write_samples(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name in (*NODES, "test"):
        (folder / name).mkdir()
        x, y = rng.normal(size=(SAMPLES, FEATURES)).astype(np.float32), np.arange(SAMPLES) % CLASSES
        np.savez(folder / name / "samples.npz", x=x, y=y)


def measure(hops: int, units: int) -> dict[str, Any]:
    """Run enough hops, and say what each of them took."""
    import fedrelay as fr

    recorder, cpu = recorder_of_server(), {}
    rounds = -(-(WARM_UP + hops + 1) // len(NODES))

    def note_cpu(context: Any) -> None:
        if context.round in (WARM_UP // len(NODES), rounds):
            cpu[context.round] = {name: cpu_seconds(process) for name, process in processes.items()}

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_samples(folder)
        program = functools.partial(serve_with_recorder, folder)
        options, test = ("--data", "samples.npz"), folder / "test" / "samples.npz"
        with loopback_nodes(folder, {each: folder / each for each in NODES}, options, test, program) as nodes:
            processes = {"the server": os.getpid(), "the SuperLink": nodes.superlink}
            processes |= {f"node {name}": process for name, process in nodes.processes.items()}
            settings: dict[str, Any] = {"rounds": rounds, "batch_size": SAMPLES, "model.hidden": [units]}
            callback = type("NoteCpu", (fr.Callback,), {"on_round_end": lambda self, context: note_cpu(context)})()
            fr.run(
                "fedcyclic",
                data="noise",
                model="mlp",
                engine=nodes.engine,
                fraction=1.0,
                callbacks=callback,
                **settings,
            )
            server = {label: list(spans) for label, spans in recorder.spans.items()}
        traces = [json.loads((folder / f"{process}.json").read_text()) for process in nodes.processes.values()]
    rows = rows_of(server, traces, hops)
    first, last = server["build"][-1 - hops][0], server["build"][-1][0]
    calls = sum(len(within(spans["call"], (first, last))) for spans in (server, *traces)) / hops
    early, late = cpu[min(cpu)], cpu[max(cpu)]
    counted = len(NODES) * (max(cpu) - min(cpu))
    used = {CPU.format(name): 1e3 * (late[name] - early[name]) / counted for name in ("the server", "the SuperLink")}
    both = sum(late[f"node {name}"] - early[f"node {name}"] for name in NODES)
    return {"rows": rows, "per hop": {CALLS: calls, **used, CPU.format("the node"): 1e3 * both / counted}}


def measured_in_process(source: Path, words: Sequence[str]) -> dict[str, Any]:
    """What a process with the sources of a clone measures."""
    search = os.pathsep.join((str(source / "src"), str(Path(__file__).parent)))
    done = subprocess.run(
        [sys.executable, __file__, "--measure", *words],
        env={**os.environ, "PYTHONPATH": search},
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"the measurement in {source} failed")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured_in_turn(before: Path, words: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """What is measured with the sources of another clone and with these."""
    sources = {"before": before, "now": Path(__file__).resolve().parent.parent}
    measured: dict[str, list[dict[str, Any]]] = {name: [] for name in sources}
    for _ in range(REPEATS):
        for name, source in sources.items():
            measured[name].append(measured_in_process(source, words))
    return measured


def medians(measured: Sequence[Mapping[str, Any]]) -> Row:
    """Part → its median over all hops that have it, in milliseconds, and numbers for each hop."""
    rows = [row for each in measured for row in each["rows"]]
    parts = {part: [1e3 * row[part] for row in rows if part in row] for part in (*PARTS, BETWEEN_ROUNDS, TRAINING)}
    parts[OVERHEAD] = [1e3 * row[OVERHEAD] for row in rows if PARTS[-1] in row]
    parts |= {name: [each["per hop"][name] for each in measured] for name in measured[0]["per hop"]}
    return {part: median(values) for part, values in parts.items() if values}


def print_table(found: Mapping[str, Row]) -> None:
    print(f"| median, milliseconds | {' | '.join(found)} |")
    print(f"|---|{'---:|' * len(found)}")
    for part in next(iter(found.values())):
        print(f"| {part} | {' | '.join(f'{row[part]:.1f}' for row in found.values())} |")


@contextmanager
def load() -> Iterator[list[float]]:
    """How many processes wanted to run, on average, before and after."""
    noted = [os.getloadavg()[0]]
    yield noted
    noted.append(os.getloadavg()[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hops", type=int, default=50, help="hops that are counted, each time")
    parser.add_argument("--megabytes", type=float, default=1.0, help="size of the model")
    parser.add_argument("--before", type=Path, metavar="OLD", help="a clone of another version")
    parser.add_argument("--smoke", action="store_true", help="only see that it works")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if importlib.util.find_spec("flwr") is None:
        print("Flower is not installed: there are no hops to measure (pip install 'fedrelay[flower]')")
        return 0
    hops, megabytes = (2, 0.1) if options.smoke else (options.hops, options.megabytes)
    units = max(1, round(1e6 * megabytes / BYTES_PER_UNIT))
    if options.measure:
        print(json.dumps(measure(hops, units)))
        return 0
    with load() as busy:
        if options.before:
            words = ["--hops", str(hops), "--megabytes", str(megabytes)]
            measured = measured_in_turn(options.before.resolve(), words)
        else:
            measured = {"now": [measure(hops, units)]}
    print_table({name: medians(each) for name, each in measured.items()})
    counted = len(measured["now"]) * hops
    print(
        f"\n{counted} hops, {megabytes:g} MB, {os.cpu_count()} cores, load {' → '.join(f'{each:.1f}' for each in busy)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
