"""The virtual environments of the peers: made when missing, left out with a line when that fails."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent
CONSTRAINTS = BENCHMARKS.parent / "constraints.txt"
FOLDER = BENCHMARKS / ".venvs"

_VERSIONS = """
import importlib, importlib.metadata, json, sys
for module in sys.argv[1].split(","):
    importlib.import_module(module)
print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[2].split(",")}))
"""


@dataclass(frozen=True)
class Environment:
    """Where one peer is installed."""

    name: str
    requirements: tuple[str, ...]
    modules: tuple[str, ...]
    """What must import."""
    packages: tuple[str, ...]
    """Whose versions the page names."""

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return FOLDER / self.name / "bin" / "python"

    def versions(self) -> dict[str, str] | None:
        """The versions of its packages, or None where it is not usable."""
        if not self.python.exists():
            return None
        return versions_in(self.python, self.modules, self.packages)

    def install(self) -> str | None:
        """Make it afresh; gives back what went wrong, if anything did."""
        venv.create(FOLDER / self.name, with_pip=True, clear=True)
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*pip, "-c", str(CONSTRAINTS), *self.requirements], capture_output=True, text=True)
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        return None if done.returncode == 0 else (errors or ["pip failed"])[-1]


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("flower", ("torch", "flwr[simulation]"), ("torch", "flwr", "ray"), ("torch", "flwr", "ray")),
        Environment("pfl", ("torch", "pfl"), ("torch", "pfl"), ("torch", "pfl")),
        Environment("nvflare", ("torch", "nvflare"), ("torch", "nvflare"), ("torch", "nvflare")),
    )
}


def versions_in(python: Path, modules: tuple[str, ...], packages: tuple[str, ...]) -> dict[str, str] | None:
    """The versions of some packages as an interpreter sees them, or None where a module does not import."""
    command = [str(python), "-c", _VERSIONS, ",".join(modules), ",".join(packages)]
    asked = subprocess.run(command, capture_output=True, text=True)
    if asked.returncode:
        return None
    found: dict[str, str] = json.loads(asked.stdout.splitlines()[-1])
    return found


def own_versions() -> dict[str, str]:
    """The versions of the interpreter that runs FedRelay."""
    found = versions_in(Path(sys.executable), ("fedrelay",), ("fedrelay", "torch", "numpy"))
    if found is None:
        raise SystemExit(f"fedrelay is not installed for {sys.executable}: run `make install` and use .venv/bin/python")
    return {"python": ".".join(str(part) for part in sys.version_info[:3]), **found}
