"""Text for pagers, terminals and chats: printable (`telemetry.text.printable`), and cut to a length."""

from __future__ import annotations

from telemetry.text.printable import one_line

ELLIPSIS = "…"


def clean(text: str, limit: int | None = None) -> str:
    """Return one line of printable characters: blanks for line breaks and tabs, `?` for control
    and direction characters."""
    line = one_line(text)
    return line if limit is None else cut(line, limit)


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters, with an ellipsis where something is missing."""
    if len(text) <= limit:
        return text
    return text[: max(0, limit - 1)].rstrip() + ELLIPSIS if limit > 0 else ""


def cut_bytes(text: str, limit: int) -> str:
    """Return at most `limit` bytes of UTF-8, no character in halves."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return text
    kept = raw[: max(0, limit - len(ELLIPSIS.encode()))].decode("utf-8", "ignore").rstrip()
    return kept + ELLIPSIS
