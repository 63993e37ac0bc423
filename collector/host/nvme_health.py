"""Health of the local NVMe drives, which only `nvme smart-log` tells, and root alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from collector.host.parts import PartLog
from collector.host.programs import Run, Task, UnknownError

DRIVE_SECONDS = 3600.0


WORN, SPARE = 0.9, 0.05
"""Share of its life used, and of blocks to spare, from which on a drive is named."""


def drives(texts: Mapping[str, str], parts: PartLog) -> dict[str, float]:
    """Read `nvme smart-log -o json` of each drive, by its name. Raises `UnknownError` or `ValueError`."""
    critical = media = 0
    worn: list[float] = []
    spare: list[float] = []
    for drive, text in texts.items():
        found: Any = msgspec.json.decode(text)
        warning = found["critical_warning"]
        value = warning.get("value", 0) if isinstance(warning, dict) else warning
        critical += bool(int(value))
        used = found.get("percent_used", found.get("percentage_used"))
        worn.append(float(used) / 100)
        spare.append((float(found["avail_spare"]) - float(found["spare_thresh"])) / 100)
        media += int(found["media_errors"])
        parts.states("node_nvme_critical", {drive: not int(value)}, "has a critical warning")
        parts.states("node_nvme_worn_ratio", {drive: worn[-1] < WORN}, "is worn")
        parts.states("node_nvme_spare_ratio", {drive: spare[-1] > SPARE}, "has few blocks to spare")
        parts.count("node_nvme_media_errors_total", drive, int(found["media_errors"]))
    if not worn:
        raise UnknownError("no drive")
    return {
        "node_nvme_critical": float(critical),
        "node_nvme_worn_ratio": max(worn),
        "node_nvme_spare_ratio": min(spare),
        "node_nvme_media_errors_total": float(media),
    }


def drive_task(root: Path, nvme: str | None, parts: PartLog) -> Task:
    """Return the task; `nvme` is None where nvme-cli is not there."""

    def ask(run: Run) -> Mapping[str, float]:
        names = sorted(path.name for path in (root / "sys/class/nvme").glob("nvme*") if _is_local(path))
        if nvme is None or not names:
            raise UnknownError("no nvme-cli, or no drive")
        command = [nvme, "smart-log", "-o", "json"]
        return drives({name: run([*command, str(root / "dev" / name)]) for name in names}, parts)

    names = ("node_nvme_critical", "node_nvme_worn_ratio", "node_nvme_spare_ratio", "node_nvme_media_errors_total")
    return Task(names, ask, DRIVE_SECONDS)


def _is_local(folder: Path) -> bool:
    try:
        return (folder / "transport").read_text().strip() == "pcie"
    except OSError:
        return False
