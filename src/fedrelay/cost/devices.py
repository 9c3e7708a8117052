"""The devices of clients, for virtual time: nothing is measured."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from fedrelay.errors import DataError
from fedrelay.experiment.spec import Section, unknown
from fedrelay.rng import generator

ProfileName = Literal["uniform", "log-normal", "two-tier", "csv", "fedgsp"]

_DEVICE = frozenset({"flops", "down", "up", "latency"})
OPTIONS: dict[ProfileName, frozenset[str]] = {
    "uniform": _DEVICE,
    "log-normal": _DEVICE | {"speed_sigma", "link_sigma"},
    "two-tier": _DEVICE | {"slow_share", "slow_factor"},
    "csv": frozenset({"path"}),
    "fedgsp": frozenset(),
}
"""The settings that each profile reads."""


@dataclass(frozen=True)
class Device:
    """The speed and the link of one client."""

    flops: float
    """FLOP/s."""

    down: float
    up: float
    """bit/s from and to the network."""

    latency: float
    """Seconds to the network, either way."""

    def scaled(self, speed: float, link: float) -> Device:
        """A device with `speed` times the speed and `link` times the bandwidth."""
        return Device(self.flops * speed, self.down * link, self.up * link, self.latency)


DeviceOf = Callable[[int], Device]
"""Client → its device."""

FEDGSP_DEVICE = Device(flops=567e9, down=567e6, up=567e6, latency=0.0)
FEDGSP_SAMPLE_FLOPS = 96e6
FEDGSP_MERGE_FLOPS = 6.3e6
"""The constants of S. Zeng et al., FedGSP, DASFAA 2022, section 4.1."""


SERVER_DEVICE = Device(math.inf, math.inf, math.inf, 0.0)
"""The server computes in no time."""


class ClockSettings(Section):
    """The clients' devices and links, for times that are computed and not measured."""

    profile: ProfileName = Field(
        "uniform",
        description="the clients' devices: uniform (all alike), log-normal, two-tier, csv (from a file) or fedgsp "
        "(that paper's constants)",
    )
    flops: float = Field(1e10, ge=1, description="FLOP/s of a client; its median if log-normal, the fast tier's")
    down: float = Field(
        1e8, ge=1, description="bit/s from the network to a client; log-normal: the median; two-tier: the fast tier"
    )
    up: float = Field(
        2e7, ge=1, description="bit/s from a client to the network; log-normal: the median; two-tier: the fast tier"
    )
    latency: float = Field(0.05, ge=0, description="seconds between a client and the network")
    speed_sigma: float = Field(0.5, ge=0, le=5, description="log-normal: standard deviation of the log of the speed")
    link_sigma: float = Field(
        0.5, ge=0, le=5, description="log-normal: the same of the bandwidth, one draw for both ways"
    )
    slow_share: float = Field(0.2, ge=0, le=1, description="two-tier: the probability that a client is slow")
    slow_factor: float = Field(
        10.0, ge=1, le=1e6, description="two-tier: how many times slower its computing and its link are"
    )
    path: Path | None = Field(
        None, description="csv: a file with the columns client, flops, down, up and latency; clients count from 0"
    )

    @model_validator(mode="after")
    def _everything_has_an_effect(self) -> Self:
        for name, each in type(self).model_fields.items():
            if name not in {"profile", *OPTIONS[self.profile]} and getattr(self, name) != each.default:
                owners = [repr(profile) for profile, options in OPTIONS.items() if name in options]
                raise ValueError(
                    f"{name}: has no effect with profile {self.profile!r}; it is an option of {', '.join(owners)}"
                )
        if self.profile == "csv" and self.path is None:
            raise ValueError("path: is required with profile 'csv'")
        return self

    @property
    def sample_flops(self) -> float | None:
        """FLOPs of one training sample, if the profile fixes them; otherwise they are counted on the model."""
        return FEDGSP_SAMPLE_FLOPS if self.profile == "fedgsp" else None

    @property
    def merge_seconds(self) -> float:
        """Seconds the server takes to add a model to a mean."""
        return FEDGSP_MERGE_FLOPS / FEDGSP_DEVICE.flops if self.profile == "fedgsp" else 0.0

    def devices(self, seed: int, clients: int) -> DeviceOf:
        """The device of each client; a random one depends on the seed and the client alone."""
        usual = Device(self.flops, self.down, self.up, self.latency)
        if self.profile == "csv":
            assert self.path is not None
            return read_devices(self.path, clients).__getitem__
        if self.profile == "fedgsp":
            return lambda client: FEDGSP_DEVICE
        if self.profile == "uniform":
            return lambda client: usual

        @cache
        def drawn(client: int) -> Device:
            rng = generator(seed, "devices", client)
            if self.profile == "two-tier":
                slow = rng.random() < self.slow_share
                return usual.scaled(1 / self.slow_factor, 1 / self.slow_factor) if slow else usual
            speed, link = rng.standard_normal(2)
            return usual.scaled(math.exp(self.speed_sigma * speed), math.exp(self.link_sigma * link))

        return drawn


def read_devices(path: Path, clients: int) -> dict[int, Device]:
    """Read the devices of clients 0 … clients − 1 from a CSV file, which may hold more."""
    try:
        rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig")), strict=True)
        lines = [(rows.line_num, row) for row in rows if any(cell.strip() for cell in row)]
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: is not a CSV file ({error})") from None
    columns = _columns(path, [name.strip() for name in lines[0][1]] if lines else [])
    devices: dict[int, Device] = {}
    for number, row in lines[1:]:
        if len(row) != len(columns):
            raise DataError(f"{path}, line {number}: {len(row)} values for {len(columns)} columns")
        values = dict(zip(columns, (cell.strip() for cell in row), strict=True))
        client = values.pop("client")
        if not (client.isascii() and client.isdecimal() and len(client) < 19):
            raise DataError(f"{path}, line {number}: client: must be a whole number from 0, got {client!r}")
        if int(client) in devices:
            raise DataError(f"{path}, line {number}: duplicate client {client}")
        numbers = {name: _number(path, number, name, value) for name, value in values.items()}
        devices[int(client)] = Device(**numbers)
    missing = [client for client in range(clients) if client not in devices]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DataError(f"{path}: no line for client {missing[0]}{more}; needed: 0 … {clients - 1}")
    return devices


def _columns(path: Path, header: list[str]) -> list[str]:
    needed = ["client", *(each.name for each in fields(Device))]
    for name in header:
        if name not in needed or header.count(name) > 1:
            what = f"duplicate column {name!r}" if name in needed else unknown("column", name, needed)
            raise DataError(f"{path}: {what}")
    missing = [name for name in needed if name not in header]
    if missing:
        raise DataError(f"{path}: missing columns: {', '.join(missing)}; its first line must name {', '.join(needed)}")
    return header


def _number(path: Path, line: int, column: str, text: str) -> float:
    """Parse a value of the file; the bounds are those of the settings."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    least = 0 if column == "latency" else 1
    if not (math.isfinite(value) and value >= least):
        raise DataError(f"{path}, line {line}: {column}: must be a number, at least {least}, got {text!r}")
    return value
