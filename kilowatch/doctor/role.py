"""The role of this machine: what `kilowatch doctor` has to check here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from collector.sources import has_driver
from kilowatch import settings
from kilowatch.settings import Settings
from telemetry.text.settings import read_toml

UNIT_FOLDERS = (
    Path("/etc/systemd/system"),
    Path("/usr/local/lib/systemd/system"),
    Path("/usr/lib/systemd/system"),
    Path("/lib/systemd/system"),
)
STATE = Path("/var/lib")
_DATA = re.compile(r"--data[ =](\S+)")
_STATE = re.compile(r"^StateDirectory=(\S+)", re.MULTILINE)


class MachineRole(StrEnum):
    """The services that a machine has."""

    COLLECTOR = "collector"
    AGGREGATOR = "aggregator"
    BOTH = "both"
    VIEWER = "viewer"
    """None: people look at a cluster from it."""

    @property
    def collects(self) -> bool:
        """Whether a collector runs here."""
        return self in {MachineRole.COLLECTOR, MachineRole.BOTH}

    @property
    def aggregates(self) -> bool:
        """Whether an aggregator runs here."""
        return self in {MachineRole.AGGREGATOR, MachineRole.BOTH}


def role_of(named: Path | None, loaded: Settings, folders: Sequence[Path] = UNIT_FOLDERS) -> tuple[MachineRole, str]:
    """Return the role of this machine and what it follows from: its units, else the certificate in its
    settings, else their sections, else whether it has a driver."""
    collects = unit("collector", folders) is not None
    aggregates = unit("aggregator", folders) is not None
    if collects or aggregates:
        return _role(collects, aggregates), "its units"
    certificate = loaded.broker.cert_file
    if certificate is not None and certificate.stem in {"node", "aggregator"}:
        of_node = certificate.stem == "node"
        return _role(of_node, not of_node), f"its certificate {certificate}"
    path = settings.find_file(named)
    sections = set() if path is None else read_toml(path).keys() & {"collector", "aggregator"}
    if sections:
        return _role("collector" in sections, "aggregator" in sections), f"the sections of {path}"
    if has_driver():
        return MachineRole.BOTH, "its GPU driver"
    if path is not None:
        return MachineRole.BOTH, f"{path}, which names neither"
    return MachineRole.VIEWER, "that it has no unit, no settings and no GPU driver"


def _role(collects: bool, aggregates: bool) -> MachineRole:
    if collects and aggregates:
        return MachineRole.BOTH
    return MachineRole.COLLECTOR if collects else MachineRole.AGGREGATOR


def unit(service: str, folders: Sequence[Path] = UNIT_FOLDERS) -> str | None:
    """Return the text of an installed unit; None where there is none."""
    for folder in folders:
        try:
            return (folder / f"kilowatch-{service}.service").read_text("utf-8", "replace")
        except OSError:
            continue
    return None


def as_the_units_run(loaded: Settings, folders: Sequence[Path] = UNIT_FOLDERS) -> Settings:
    """Return the settings with the folders that the installed units use, which are not those of the user who
    calls `doctor`."""
    aggregator, collector = unit("aggregator", folders), unit("collector", folders)
    if aggregator is not None:
        data = _DATA.search(aggregator)
        place = Path(data[1]) if data else _state(aggregator)
        if place is not None:
            loaded = msgspec.structs.replace(
                loaded, aggregator=msgspec.structs.replace(loaded.aggregator, data_dir=place)
            )
    place = None if collector is None else _state(collector)
    if place is not None and loaded.collector.state_dir == _usual_state():
        loaded = msgspec.structs.replace(loaded, collector=msgspec.structs.replace(loaded.collector, state_dir=place))
    return loaded


def _state(text: str) -> Path | None:
    found = _STATE.search(text)
    return STATE / found[1] if found else None


def _usual_state() -> Path:
    from collector.config import default_state_dir  # noqa: PLC0415 - beside its only use

    return default_state_dir()
