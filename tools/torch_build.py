"""Says which build of PyTorch would be installed, before minutes and gigabytes are spent on it.

python tools/torch_build.py CONSTRAINTS
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence


def wanted_packages(constraints: str) -> list[tuple[str, str]]:
    """Names and versions of PyTorch and what it needs, as pip would install them here; nothing is installed."""
    command = [
        sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--disable-pip-version-check", "--report", "-",
        "-c", constraints, "torch",
    ]  # fmt: skip
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if found.returncode:
        return []
    wanted = json.loads(found.stdout)["install"]
    return [(each["metadata"]["name"].lower(), each["metadata"]["version"]) for each in wanted]


def in_words(packages: Sequence[tuple[str, str]]) -> str:
    """What arrives, and how large it is."""
    version = dict(packages).get("torch")
    if version is None:
        return "PyTorch is there already, or the package index did not answer."
    libraries = [name for name, _ in packages if name.startswith(("nvidia", "cuda", "triton"))]
    if libraries or "+cu" in version:
        return (
            f"PyTorch {version} with CUDA, and {len(libraries)} packages for GPUs: about 3 GB to download and 5 GB on "
            "disk. The CPU build takes 0.7 GB and is enough for the demo and the tests: stop with Ctrl-C, and see 'The "
            "CPU build of PyTorch' in docs/install.md."
        )
    return f"PyTorch {version} without CUDA: about 0.7 GB on disk."


if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        print(in_words(wanted_packages(sys.argv[1])))
