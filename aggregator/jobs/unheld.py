"""The use of GPUs that no job held, by month, in a file: with the jobs it is the use of all GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from aggregator.folder import kinds
from aggregator.jobs.usage import UnheldKey, UnheldUse
from api.use import UseRow
from telemetry.files.state_file import json_of, replace_file

NAME = "unheld.json"
KEPT_MONTHS = 36


class UnheldRecord(msgspec.Struct, kw_only=True):
    """A month in the file."""

    month: str
    reported: bool
    use: UnheldUse


def load(folder: Path) -> dict[UnheldKey, UnheldUse]:
    """Return what was saved; nothing where there is no file that can be used."""
    found = kinds.read(folder / NAME, json_of(list[UnheldRecord])) or []
    return {UnheldKey(one.month, one.reported): one.use for one in found}


def encode(unheld: dict[UnheldKey, UnheldUse]) -> bytes:
    """Return the newest months as the file has them."""
    months = sorted({key.period for key in unheld})[-KEPT_MONTHS:]
    return msgspec.json.encode(
        [
            UnheldRecord(month=key.period, reported=key.reported, use=use)
            for key, use in sorted(unheld.items())
            if key.period in months
        ]
    )


def save(folder: Path, content: bytes) -> None:
    """Replace the file, whole or not at all. Raises `OSError`."""
    replace_file(folder / NAME, content)


def joined_use(parts: Iterable[UnheldUse | None]) -> UnheldUse | None:
    """Return the sums of several aggregators as one; None where none of them counted."""
    sums: Counter[str] = Counter()
    for each in parts:
        sums.update({} if each is None else msgspec.structs.asdict(each))
    return UnheldUse(**sums) if sums else None


def row_of(use: UnheldUse) -> UseRow:
    """Return a sum as a row beside those of users."""

    def share(seconds: float) -> float | None:
        return min(1.0, seconds / use.seconds) if use.seconds > 0 else None

    return UseRow(
        jobs=0,
        gpu_hours=use.seconds / 3600,
        hours_coverage=1.0,
        utilization_ratio=use.busy / use.known if use.known > 0 else None,
        utilization_coverage=share(use.known),
        energy_joules=use.joules if use.joule_seconds > 0 else None,
        energy_coverage=share(use.joule_seconds),
        wall_joules=use.wall if use.wall_seconds > 0 else None,
        wall_coverage=share(use.wall_seconds),
        cost=use.cost if use.cost_seconds > 0 else None,
        cost_coverage=share(use.cost_seconds),
        idle_gpu_hours=use.idle_seconds / 3600 if use.idle_known > 0 else None,
        idle_coverage=share(use.idle_known),
        idle_cost=use.idle_cost if use.idle_known > 0 and use.cost_seconds > 0 else None,
    )
