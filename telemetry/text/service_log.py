"""The log of a service: what it is, at its start, and what a reload changed; as text or as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from telemetry.text import rfc3339
from telemetry.text.outside_errors import logged_line
from telemetry.text.printable import printable_json

log = logging.getLogger("kilowatch.service")
log.setLevel(logging.INFO)  # a good start is logged without -v too


class JsonFormatter(logging.Formatter):
    """Formatter of a log for programs: one JSON object a line, with `error`, of outside, or `traceback`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of an event."""
        found: dict[str, Any] = {
            "time": rfc3339(int(record.created * 1e9)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            if line := logged_line(record.exc_info[1]):
                found["error"] = line
            else:
                found["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            found["stack"] = self.formatStack(record.stack_info)
        return printable_json(json.dumps(found, ensure_ascii=False, default=str))


def log_as_json() -> None:
    """Have every handler of the root logger write JSON."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())


def logs_json() -> bool:
    """Return whether the log is JSON: then nothing else is to be written there."""
    return any(isinstance(one.formatter, JsonFormatter) for one in logging.getLogger().handlers)


def log_start(role: str, release: str, facts: Mapping[str, str]) -> None:
    """Log in one line what a service is, and what it listens to, reads and publishes to."""
    words = "; ".join(f"{name} {fact}" for name, fact in facts.items() if fact)
    log.info("%s %s; %s", role, release, words)


def log_reload(section: str, before: msgspec.Struct, after: msgspec.Struct, applied: str | tuple[str, ...]) -> None:
    """Log which settings differ from those in force, after a reload. Those whose key begins with `applied`
    are in force; the others need a restart."""
    changed = [_as_written(key) for key in changed_keys(before, after, section)]
    begins = (applied,) if isinstance(applied, str) else applied
    now = [key for key in changed if any(each and f"{key}.".startswith(f"{each}.") for each in begins)]
    later = [key for key in changed if key not in now]
    if now:
        log.info("reload: in force now: %s", ", ".join(now))
    if later:
        log.warning("reload: these changed settings need a restart of the service: %s", ", ".join(later))
    if not changed:
        log.info("reload: no setting of %s has changed", section)


def log_refused(error: Exception) -> None:
    """Log that a reload was refused: nothing has changed."""
    log.error("reload: nothing was changed. %s", error)


def changed_keys(before: Any, after: Any, where: str) -> Iterator[str]:
    """Yield the keys of settings that differ, as deep as both are sections. Values are not shown: they
    may be secrets."""
    left, right = _section(before), _section(after)
    if left is None or right is None:
        if before != after:
            yield where
        return
    for key in dict.fromkeys((*left, *right)):
        name = f"{where}.{key}"
        if key not in left or key not in right:
            yield name
        else:
            yield from changed_keys(left[key], right[key], name)


_SHARED = ("alerts", "broker", "cluster", "drift", "expected", "power")
"""Settings that are usually written at the top of the file, for both sides."""


def _as_written(key: str) -> str:
    """Return a key as people write it: `alerts.channels.phone`, not `aggregator.alerts.channels.phone`."""
    _, _, rest = key.partition(".")
    return rest if rest.partition(".")[0] in _SHARED else key


def _section(value: Any) -> Mapping[str, Any] | None:
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    return value if isinstance(value, dict) else None
