"""Text from outside, made printable: the one place that decides which characters may be shown.

Names, log lines and messages come from every machine of a fleet and may contain anything: escape
sequences of terminals (also the eight-bit ones, U+009B), line breaks that forge a second line of a
log, marks that reverse the direction of the text behind them. Terminals, logs, pagers and chats get
them as `?`; JSON gets them as escapes, so that nothing is lost.
"""

from __future__ import annotations

import logging
import re

from telemetry.text.outside_errors import logged_line

_SHOWN_IN_JSON = re.compile(r"[^\x20-\x7e\n]")


def printable(text: str) -> str:
    """Return text with `?` for each character that is not printable: control characters, line
    breaks, direction marks, surrogates, code points without a character. The length is the same."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else "?" for one in text)


def printable_lines(text: str) -> str:
    """Return text of several lines with `?` for all that is not printable but the line feeds."""
    return "\n".join(map(printable, text.split("\n")))


def one_line(text: str) -> str:
    """Return one line of printable characters, with a blank for line breaks, tabs and runs of them."""
    return printable(" ".join(text.split()))


def printable_json(text: str) -> str:
    """Return a JSON document with an escape for each character that is not printable: the same
    values, and nothing that a terminal obeys."""
    return _SHOWN_IN_JSON.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    if match[0].isprintable():
        return match[0]
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


class PrintableFormatter(logging.Formatter):
    """Formatter of a log for people: one printable line for each event, whatever is quoted in it.

    The lines of a traceback are indented, so that none of them can pass for an event.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        """Return the line of an event."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: logging._SysExcInfoType) -> str:  # noqa: N802 - as above
        """Return the traceback of an event, or the line of an error from outside."""
        return _indented(logged_line(ei[1]) or super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - as above
        """Return the stack of an event."""
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join(f"  {printable(line)}" for line in text.splitlines())
