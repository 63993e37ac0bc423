"""Exit codes of all commands: docs/exit-codes.md has the table, and what each means by command."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit code of a command; where several apply, the worst that is known: 2, 1, 3, 0."""

    CLEAN = 0
    """Done, and nothing to report."""
    TICKET = 1
    """A person should look at it in working hours."""
    PAGE = 2
    """A person should look at it now."""
    UNJUDGED = 3
    """No answer: what was asked can't be read, reached or judged, or the other side refused."""
    USAGE = 64
    """A wrong option or a wrong settings file: EX_USAGE of sysexits.h."""
    INTERRUPTED = 130
    """Ended by Ctrl-C, as shells report it."""
    PIPE = 141
    """The reader of the output has ended, as `head` does; the code is the one that shells report."""


def worst_code(*codes: ExitCode) -> ExitCode:
    """Return the code that counts where several apply; `CLEAN` without any."""
    return max(codes, key=_WORST.index, default=ExitCode.CLEAN)


_WORST = (
    ExitCode.CLEAN, ExitCode.UNJUDGED, ExitCode.TICKET, ExitCode.PAGE, ExitCode.USAGE,
    ExitCode.INTERRUPTED, ExitCode.PIPE,
)  # fmt: skip
