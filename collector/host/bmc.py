"""Fans, power supplies and log of the node's management controller: by Redfish where the settings have its address,
else by `ipmitool` in the node itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Protocol

from collector.host.bmc_log import LAST, BmcLog, BmcLogEntry, elist, used
from collector.host.parts import PartLog
from collector.host.programs import Run, Task, UnknownError

BMC_SECONDS, LOG_SECONDS = 60.0, 300.0
_DEVICES = ("dev/ipmi0", "dev/ipmi/0", "dev/ipmidev/0")
_FAILED = re.compile(
    r"failure detected|predictive failure|(?:ac|input) (?:lost|out-of-range)|config(?:uration)? error", re.IGNORECASE
)
_PRESENT = re.compile(r"presence detected", re.IGNORECASE)
_RPM = re.compile(r"(\d+(?:\.\d+)?) RPM")
_STATES = frozenset({"ok", "nc", "cr", "nr", "lnc", "lcr", "lnr"})
_BAD = frozenset({"cr", "nr", "lcr", "lnr"})
SLOW_FAN = 0.2
"""Share of the median below which a fan does not do its work."""


class BmcService(Protocol):
    """A controller that is asked over the network; `collector.host.redfish` is one. Its methods raise as those of a
    task do."""

    def fans(self) -> dict[str, float]:
        """Return the fans that are there, and those that failed."""

    def supplies(self) -> dict[str, float]:
        """Return the power supplies that are there, and those that failed."""

    def entries(self) -> tuple[list[BmcLogEntry], float | None]:
        """Return the entries of the log, and the used share of it."""

    def close(self) -> None:
        """Take leave."""


def supplies(text: str, parts: PartLog) -> dict[str, float]:
    """Read `ipmitool sdr type "Power Supply"`: the supplies that are there, and those that failed. Raises
    `UnknownError`."""
    names: dict[str, str] = {}
    well: dict[str, bool] = {}
    for words in _rows(text):
        entity, state = words[3], words[4]
        names.setdefault(entity, words[0].removesuffix(" Status"))
        has_failed = _FAILED.search(state) is not None
        if has_failed or _PRESENT.search(state):
            well[entity] = well.get(entity, True) and not has_failed
    if not well:
        raise UnknownError("no power supply with a state")
    return counted_supplies([(names[entity], is_well) for entity, is_well in well.items()], parts)


def counted_supplies(found: Sequence[tuple[str, bool]], parts: PartLog) -> dict[str, float]:
    """Return how many power supplies there are, and how many failed. `found`: name of each, and whether it is well."""
    failed = sum(not is_well for _, is_well in found)
    parts.states("node_supplies_failed", _named(found), "has failed or has no input")
    return {"node_supplies": float(len(found)), "node_supplies_failed": float(failed)}


def counted_fans(found: Sequence[tuple[str, bool]], parts: PartLog) -> dict[str, float]:
    """Return how many fans there are, and how many failed. `found`: name of each, and whether it is well."""
    failed = sum(not is_well for _, is_well in found)
    parts.states("node_fans_failed", _named(found), "stands or is slow")
    return {"node_fans": float(len(found)), "node_fans_failed": float(failed)}


def _named(found: Sequence[tuple[str, bool]]) -> dict[str, bool]:
    """Return by name whether a part is well: of parts with one name, whether all are."""
    well: dict[str, bool] = {}
    for name, is_well in found:
        if name:
            well[name] = well.get(name, True) and is_well
    return well


def fans(text: str, parts: PartLog) -> dict[str, float]:
    """Read `ipmitool sdr type Fan`: the fans that are there, and those that stand or are much slower than the
    others. Raises `UnknownError`."""
    speeds: list[tuple[str, float, bool]] = []
    for words in _rows(text):
        match = _RPM.search(words[4])
        if match is not None and words[2] in _STATES:  # an empty place has no reading
            speeds.append((words[0], float(match[1]), words[2] in _BAD))
    if not speeds:
        raise UnknownError("no fan with a speed")
    least = SLOW_FAN * median(speed for _, speed, _ in speeds)
    return counted_fans([(name, not bad and speed >= least) for name, speed, bad in speeds], parts)


def _rows(text: str) -> list[list[str]]:
    """Return the rows of ipmitool: name, number, state, entity, reading."""
    rows = ([word.strip() for word in line.split("|")] for line in text.splitlines())
    return [words for words in rows if len(words) == 5]


def bmc_tasks(root: Path, ipmitool: str | None, service: BmcService | None, log: BmcLog, parts: PartLog) -> list[Task]:
    """Return the tasks of a controller. `ipmitool` is None where the program is not there, or not to be asked."""

    def sdr(run: Run, kind: str) -> str:
        return run([_checked(), "sdr", "type", kind])

    def _checked() -> str:
        if ipmitool is None or not any((root / path).exists() for path in _DEVICES):
            raise UnknownError("no ipmitool, or no BMC")
        return ipmitool

    def log_by_ipmi(run: Run) -> Mapping[str, float]:
        share = used(run([_checked(), "sel", "info"]))
        return _of_log(log, elist(run([_checked(), "sel", "elist", "last", str(LAST)])), share)

    of_supplies, of_fans = ("node_supplies", "node_supplies_failed"), ("node_fans", "node_fans_failed")
    of_log = ("node_bmc_log_critical", "node_bmc_log_used_ratio")
    if service is not None:
        return [
            Task(of_supplies, lambda _: service.supplies(), BMC_SECONDS),
            Task(of_fans, lambda _: service.fans(), BMC_SECONDS),
            Task(of_log, lambda _: _of_log(log, *service.entries()), LOG_SECONDS),
        ]
    return [
        Task(of_supplies, lambda run: supplies(sdr(run, "Power Supply"), parts), BMC_SECONDS),
        Task(of_fans, lambda run: fans(sdr(run, "Fan"), parts), BMC_SECONDS),
        Task(of_log, log_by_ipmi, LOG_SECONDS),
    ]


def _of_log(log: BmcLog, entries: list[BmcLogEntry], share: float | None) -> dict[str, float]:
    found = {"node_bmc_log_critical": log.receive(entries)}
    return found if share is None else found | {"node_bmc_log_used_ratio": share}
