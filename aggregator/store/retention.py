"""Retention: sealed files that are too old, or more than there is room for, are dropped whole."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from aggregator.config import NameLimits, StoreConfig
from aggregator.store.duck import DuckEngine
from aggregator.store.manifest import RAW, SealedFile, remove
from telemetry.wire.border import FRAMES_END

log = logging.getLogger(__name__)

_NOW = 1 << 60
"""Time of readings that are not sealed yet: later than any seal."""


def too_old(files: Iterable[SealedFile], config: StoreConfig, now: int) -> list[SealedFile]:
    """Return the files whose rows are all older than the retention of their kind; `now` in ns."""
    ages = {RAW: config.raw_age_seconds}
    for step, age in zip(config.rollup_seconds, config.rollup_age_seconds, strict=True):
        ages[str(step)] = age
    # A step that is no longer configured is kept as long as the coarsest that is.
    longest = max(ages.values())
    return [file for file in files if file.ends < now / 1e9 - ages.get(file.kind, longest)]


def too_much(files: Iterable[SealedFile], used: int, limit: int) -> list[SealedFile]:
    """Return the files to drop so that `used` bytes become `limit` at most.

    The oldest readings go first, then the finest roll-ups, the oldest first.
    """
    going: list[SealedFile] = []
    for file in sorted(files, key=lambda file: (file.step, file.period, file.path)):
        if used <= limit:
            break
        going.append(file)
        used -= file.bytes
    return going


def going(files: Sequence[SealedFile], config: StoreConfig, hot: int, now: int) -> list[SealedFile]:
    """Return the files to drop; `hot`: bytes of the database."""
    old = too_old(files, config, now)
    gone = {file.path for file in old}
    left = [file for file in files if file.path not in gone]
    used = hot + sum(file.bytes for file in left)
    crowded = too_much(left, used, config.max_bytes)
    if crowded:
        log.warning(
            "store: %d bytes are more than store.max_bytes; %d sealed files go, the oldest readings first",
            used,
            len(crowded),
        )
    return old + crowded


def drop(engine: DuckEngine, root: Path, config: StoreConfig, files: Iterable[SealedFile], now: int) -> None:
    """Drop files, and events and holes that are too old. Raises `StoreError` or `OSError`."""
    names = [file.path for file in files]
    for name in names:
        remove(root / name)
    oldest = now - int(config.events_age_seconds * 1e9)
    with engine.transaction():
        for name in names:
            engine.run("delete from files where path = ?", name)
        engine.run("delete from replaced where ends < ?", oldest // 10**9)
        engine.run("delete from events where received < ?", oldest)
        engine.run("delete from holes where received < ?", oldest)


def forget_runs(engine: DuckEngine, config: StoreConfig, frame_tables: Sequence[str]) -> None:
    """Remove old sessions, so that restarts of collectors do not add up forever.

    Only at opening: while the service runs, their numbers are in use. Age is counted from the newest
    seal, so that a wrong clock removes nothing.
    """
    age = max([config.raw_age_seconds, *config.rollup_age_seconds[:1]])
    hot = " union all ".join(f"select run from {table}" for table in frame_tables)
    with engine.transaction():
        engine.run(
            "create or replace temp table old as select run from marks group by run "
            "having max(sealed) < (select max(sealed) from marks) - ?" + (f" except ({hot})" if hot else ""),
            int(age),
        )
        engine.run("delete from marks where run in (select run from old)")
        engine.run("delete from holes where run in (select run from old)")
        engine.run("delete from runs where id in (select run from old)")
        engine.run("drop table old")


def forget_nodes(engine: DuckEngine, names: NameLimits, frame_tables: Sequence[str]) -> None:
    """Remove the sessions that never had a frame and are too many, and the inventories of nodes that
    are long gone or never had a frame, with the parts that no other has; also the holes that no session can have. What was stored when
    nothing bounded it is so healed at the next start. Readings, devices and events stay.

    Only at opening, as `forget_runs`; age is counted from the newest seal too.
    """
    hot = "".join(f" union all select distinct run, {_NOW} from {table}" for table in frame_tables)
    with engine.transaction():
        for table in ("holes", "marks"):
            engine.run(f"delete from {table} where last >= ?", FRAMES_END)
        engine.run(
            "create or replace temp table seen as select run, max(sealed) as sealed from "
            f"(select run, sealed from marks{hot}) group by run"
        )
        engine.run(
            "create or replace temp table alive as select runs.node, max(seen.sealed) as sealed "
            "from runs join seen on seen.run = runs.id group by runs.node"
        )
        engine.run(
            "delete from inventories where coalesce((select sealed from alive where alive.node = "
            "inventories.node), taken_at // 1000000000) < (select max(sealed) from marks) - ?",
            int(names.age_seconds),
        )
        engine.run(
            "delete from inventories where node in (select node from inventories where node not in "
            "(select node from alive) order by taken_at desc, node offset ?)",
            names.nodes,
        )
        engine.run(
            "delete from inventory_parts where id not in (select unnest(string_split(parts, ' ')) "
            "from inventories where parts is not null)"
        )
        engine.run(
            "create or replace temp table empty as select id as run from (select id, node, "
            "row_number() over (partition by node order by id desc) as place from runs "
            "where id not in (select run from seen)) "
            "where place > ? or node not in (select node from inventories)",
            names.sessions_per_node,
        )
        engine.run("delete from holes where run in (select run from empty)")
        engine.run("delete from runs where id in (select run from empty)")
        for table in ("seen", "empty", "alive"):
            engine.run(f"drop table {table}")


def clear_folder(folder: Path) -> None:
    """Remove a folder of unfinished work."""
    shutil.rmtree(folder, ignore_errors=True)
