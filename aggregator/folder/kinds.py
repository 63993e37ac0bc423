"""The kinds of files in the data folder, each with what is lost where one can't be used.

A file that the aggregator begins to write there has a row here: `tests/faults/test_damaged_files.py` finds one that
has none, and damages one of each in every way.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import NamedTuple, TypeVar

from alerts import journal_loss
from telemetry.files import state_file

Content = TypeVar("Content")


class FileKind(NamedTuple):
    """Files that are read in one way."""

    pattern: str
    """Of their paths below the data folder."""
    cost: str
    """Loss where one can't be used, a sentence."""


KINDS = (
    FileKind("hot.duckdb", "Sealed data stays, and frames that the nodes still have are requested again; jobs and events of before are missing."),
    FileKind("hot.duckdb.wal", "Frames that were committed last are requested again from the nodes."),
    FileKind("alerts.sqlite", journal_loss.FILE),
    FileKind("alerts.sqlite-wal", journal_loss.LOG),
    FileKind("sealed/*", "Its readings are missing in history; those that the nodes still have are requested again."),
    FileKind("rollup_*", "History is shown from finer or coarser steps, where there are any."),
    FileKind("jobs/*", "The file is made again from the database."),
    FileKind("electrical.json", "Breakers are assumed to be as warm as their load, and energy is counted from now on."),
    FileKind("months/*", "That month's energy is not known."),
    FileKind("circuits/*", "The past of circuits ends where it is damaged."),
    FileKind("running.json", "The use of jobs that run has a hole of ten minutes at most; their energy goes on by the counters."),
    FileKind("unheld.json", "The use of GPUs that no job held begins anew."),
    FileKind("nodes.json", "No node is expected: declare them again with kilowatch nodes expect."),
    FileKind("drift.json", "Deviations count from now on."),
    FileKind("fitness.json", "The past of the fitness begins now."),
    FileKind("rule_memory.bin", "Rates among peers are counted anew, and what is usual of GPUs' temperatures is learnt anew, two weeks long."),
    FileKind("homeassistant.json", "What an earlier run has announced to Home Assistant may stay there as unavailable."),
    FileKind("picture.key", "Links to pictures of before are no longer valid."),
    FileKind("tokens.json", "Its tokens count no more, after a restart at the latest: make them anew with kilowatch token add."),
    FileKind("quarantine/*", "A sample of a refused message is missing."),
    FileKind("lock", "Nothing is lost."),
    FileKind("spool/*", "Points that waited for InfluxDB are missing there."),
    FileKind("open-hours.npz", "The hour that was open at the last end has a hole in InfluxDB."),
    FileKind("outgoing/*", "A segment that waited for the shared storage does not come there."),
    FileKind("spill/*", "Nothing is lost."),
    FileKind("sealing/*", "Nothing is lost."),
)  # fmt: skip
FOLDERS = ("months", "spool", "jobs", "outgoing/**/")
"""Patterns of the folders, beside the data folder itself, in which a file may be set aside. Sealed files stay in their place
(`aggregator.store.sealed_files`)."""


def kind_of(path: PurePath) -> FileKind | None:
    """Return the kind of a file by its path below the data folder; None for one that no release writes."""
    return next((one for one in KINDS if fnmatchcase(path.as_posix(), one.pattern)), None)


def cost_of(path: PurePath) -> str:
    """Return what is lost with a file, by its path, below the data folder or whole."""
    for parts in range(1, len(path.parts) + 1):
        if (kind := kind_of(PurePath(*path.parts[-parts:]))) is not None:
            return kind.cost
    return ""


def read(path: Path, decode: Callable[[bytes], Content]) -> Content | None:
    """Return what a file of the data folder holds (`telemetry.files.state_file.read`)."""
    return state_file.read(path, decode, cost_of(path))


def set_aside(path: Path, why: BaseException | str) -> Path | None:
    """Set a file of the data folder aside (`telemetry.files.state_file.set_aside`)."""
    return state_file.set_aside(path, why, cost_of(path))


def make_folder(path: Path) -> None:
    """Make a folder of the data folder (`telemetry.files.state_file.make_folder`). Raises `OSError`."""
    state_file.make_folder(path, cost_of(path / "any"))
