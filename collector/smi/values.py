"""Conversion of a raw word of nvidia-smi into a reading in base units, or into a gap.

Numbers go through decimal arithmetic, so that `29.70 W` is 29.7 and `57 %` is 0.57, to the last
bit. A number without the unit that it needs is no reading: a truncated line must not become a value.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache

from telemetry.gap import DEVICE_LOST, ERROR, NO_PERMISSION, NOT_SUPPORTED, TIMED_OUT, Gap, reason_of
from telemetry.metric import Metric, Unit

_NUMBER = re.compile(r"([+-]?\d{1,20}(?:\.\d{1,12})?)\s*([A-Za-z%][A-Za-z%/()]{0,9})?", re.ASCII)
_HEX = re.compile(r"0x([0-9a-f]{1,16})(?:\s*\(.*\))?", re.ASCII)
_STATE = re.compile(r"p(\d{1,2})", re.ASCII)

_KIBI, _MEBI, _GIBI, _TEBI = (Decimal(1024**power) for power in (1, 2, 3, 4))
_SCALES: dict[Unit, dict[str, Decimal]] = {
    Unit.WATTS: {"W": Decimal(1), "mW": Decimal("1e-3"), "kW": Decimal(1000)},
    Unit.JOULES: {"J": Decimal(1), "mJ": Decimal("1e-3"), "kJ": Decimal(1000)},
    Unit.CELSIUS: {"C": Decimal(1)},
    Unit.HERTZ: {unit: Decimal(10) ** n for n, unit in ((0, "Hz"), (3, "kHz"), (3, "KHz"),
                                                        (6, "MHz"), (9, "GHz"))},
    Unit.RATIO: {"%": Decimal("1e-2")},
    Unit.BYTES: {
        "B": Decimal(1), "bytes": Decimal(1), "KiB": _KIBI, "MiB": _MEBI, "GiB": _GIBI,
        "TiB": _TEBI, "KB": _KIBI, "MB": _MEBI, "GB": _GIBI,  # drivers before 331 wrote MB for MiB
    },
    Unit.BYTES_PER_SECOND: {"KB/s": Decimal(1000), "MB/s": Decimal("1e6"), "GB/s": Decimal("1e9")},
    Unit.SECONDS: {
        "s": Decimal(1), "sec": Decimal(1), "ms": Decimal("1e-3"), "us": Decimal("1e-6"),
        "ns": Decimal("1e-9"),
    },
    Unit.COUNT: {"": Decimal(1), "x": Decimal(1), "bank(s)": Decimal(1)},
}  # fmt: skip
"""Factors into base units, by unit; any other word is an error."""

_FLAGS = {
    "active": 1.0, "yes": 1.0, "enabled": 1.0, "true": 1.0, "on": 1.0, "1": 1.0,
    "pending": 1.0, "degraded": 1.0,
    "not active": 0.0, "no": 0.0, "disabled": 0.0, "false": 0.0, "off": 0.0, "0": 0.0,
    "inactive": 0.0, "full": 0.0,
}  # fmt: skip
"""Words for flags. `Full` and `Degraded` describe the fabric's bandwidth: 1 when degraded."""

_RECOVERY = {
    "none": 0, "no action": 0,
    "reset": 1, "gpu reset": 1, "gpu reset required": 1, "reset required": 1, "pf flr": 1,
    "reboot": 2, "node reboot": 2, "node reboot required": 2, "reboot required": 2, "os reboot": 2,
    "drain p2p": 3, "drain peer-to-peer": 3,
    "drain and reset": 4, "drain & reset": 4,
    "recover imex domain": 5, "imex domain": 5, "recover imex": 5, "imex domain recovery": 5,
    "bus reset": 6, "pcie bus reset": 6,
    "system reboot": 7,
}  # fmt: skip
"""Words for the recovery action: they changed with drivers 570, 580 and 610, the numbers did not.
`PF FLR` and `OS Reboot` are how driver 610 prints 1 and 2 in Xid 154."""

_ABSENT = (
    "", "n/a", "not supported", "unsupported", "not available", "not applicable", "not found",
    "requested functionality has been deprecated", "deprecated", "function not found", "-",
)  # fmt: skip
_GAPS = (
    ("insufficient permissions", NO_PERMISSION),
    ("no permission", NO_PERMISSION),
    ("not permitted", NO_PERMISSION),
    ("is lost", DEVICE_LOST),
    ("fallen off", DEVICE_LOST),
    ("requires reset", DEVICE_LOST),
    ("requires a reset", DEVICE_LOST),
    ("requires restart", DEVICE_LOST),
    ("reset required", DEVICE_LOST),
    ("timeout", TIMED_OUT),
    ("timed out", TIMED_OUT),
    ("unknown error", ERROR),
    ("err!", ERROR),
)
"""Gaps by a part of the text in place of a value; the texts are NVML's error strings."""


@lru_cache(maxsize=4096)  # a node has the same few hundred words
def gap_of(raw: str) -> float | None:
    """Return the gap that a word means, or None when it is a value."""
    word = raw.strip().strip("[]").strip().lower()
    if word in _ABSENT:
        return NOT_SUPPORTED
    return next((gap for part, gap in _GAPS if part in word), None)


def is_error(raw: str) -> bool:
    """Return whether a word says that the driver tried to read a value and failed."""
    gap = gap_of(raw)
    return gap is not None and reason_of(gap) in {Gap.ERROR, Gap.TIMED_OUT}


def is_denied(raw: str) -> bool:
    """Return whether a word says that this user may not read a value."""
    gap = gap_of(raw)
    return gap is not None and reason_of(gap) is Gap.NO_PERMISSION


def convert(raw: str, metric: Metric) -> float:
    """Return the reading of this metric; `error` for an unknown word."""
    word = raw.strip().strip("[]").strip()
    if metric.unit is Unit.STATE and (state := _state(word.lower(), metric)) is not None:
        return float(state)  # first, because "None" and "GPU reset required" are actions here
    gap = gap_of(raw)
    if gap is not None:
        return gap
    if metric.unit is Unit.FLAG:
        return _FLAGS.get(word.lower(), ERROR)
    return quantity(word, metric.unit)


def quantity(word: str, unit: Unit) -> float:
    """Return a number with its unit in base units, or the gap `error`."""
    if unit is Unit.COUNT and (match := _HEX.fullmatch(word.lower())) is not None:
        return float(int(match[1], 16))
    match = _NUMBER.fullmatch(word)
    if match is None:
        return ERROR
    scale = _SCALES.get(unit, {}).get(match[2] or "")
    return ERROR if scale is None else float(Decimal(match[1]) * scale)


def _state(word: str, metric: Metric) -> int | None:
    """Return the number of a state, None when the word is none of this metric's states."""
    numbers = dict(metric.states)
    if metric.name == "gpu_recovery_action" and word in _RECOVERY:
        return _RECOVERY[word]
    number = next((number for number, name in metric.states if name.lower() == word), None)
    if number is None:
        match = _HEX.fullmatch(word)
        if match is not None:
            number = int(match[1], 16)
        elif word.isascii() and word.isdigit() and len(word) < 4:
            number = int(word)
        elif (match := _STATE.fullmatch(word)) is not None:
            number = int(match[1])
    if number is None or number not in numbers or numbers[number] == "not supported":
        return None
    return number
