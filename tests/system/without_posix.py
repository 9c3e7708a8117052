"""Runs FedRelay in a Python from which everything was removed that Windows does not have.

python without_posix.py FOLDER: imports all modules, runs and resumes in FOLDER, and prints the sum of the weights.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pkgutil
import select
import signal
import socket
import sys
import time
from pathlib import Path

import matplotlib.pyplot  # noqa: F401
import torch.utils.data  # noqa: F401  other packages are imported while the system is whole
from tests.test_file_lock import Msvcrt

for name in (
    "flwr.common",
    "ray",
    "sklearn.cluster",
    "ortools.graph.python.min_cost_flow",
    "optuna",
    "pyarrow.parquet",
):
    try:
        importlib.import_module(name)
    except ImportError:
        print(f"without {name}", file=sys.stderr)

for module in [each for each in sys.modules if each.split(".")[0].startswith("fedrelay")]:
    del sys.modules[module]
for missing in ("fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "syslog", "readline", "curses"):
    sys.modules[missing] = None  # type: ignore[assignment]
sys.modules["msvcrt"] = Msvcrt()
for owner, names in {
    os: (
        "O_NOFOLLOW",
        "O_DIRECTORY",
        "O_CLOEXEC",
        "fork",
        "register_at_fork",
        "fchmod",
        "chown",
        "killpg",
        "setsid",
        "nice",
        "uname",
        "mkfifo",
        "statvfs",
        "getloadavg",
        "sched_getaffinity",
        "sched_setscheduler",
        "sched_param",
        "SCHED_BATCH",
        "sysconf",
        "getuid",
        "geteuid",
    ),
    signal: (
        "pthread_sigmask",
        "SIG_BLOCK",
        "SIG_UNBLOCK",
        "SIG_SETMASK",
        "setitimer",
        "alarm",
        "SIGKILL",
        "SIGHUP",
        "SIGCHLD",
        "SIGPIPE",
        "SIGUSR1",
        "SIGALRM",
    ),
    select: ("poll", "epoll"),
    socket: ("AF_UNIX",),
    time: ("tzset", "clock_gettime"),
}.items():
    for name in names:
        if hasattr(owner, name):
            delattr(owner, name)
multiprocessing.get_all_start_methods = lambda: ["spawn"]  # type: ignore[method-assign]

import fedrelay  # noqa: E402
import fedrelay_reproduce  # noqa: E402

for package in (fedrelay, fedrelay_reproduce):
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)

executor = importlib.import_module("fedrelay.engines.local.executor")
sys.platform = "win32"
assert not executor.forking_is_safe()
folder = Path(sys.argv[1])
small = {"data": "digits", "clients": 10, "alpha": 0.1, "batch_size": 16, "rounds": 2, "progress": False}
first = fedrelay.run("fedseq", out=folder / "run", workers=2, **small)
again = fedrelay.resume(folder / "run", rounds=3, progress=False)
assert again.rounds == 3
workers = importlib.import_module("fedrelay.runtime.side_by_side")
assert list(workers.side_by_side(str, [1, 2], 2)) == [(1, "1"), (2, "2")]
print(first.weights.double().sum().item().hex())
