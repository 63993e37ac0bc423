"""The body of every answer of 400 and above."""

from __future__ import annotations

import msgspec


class ErrorDetail(msgspec.Struct, frozen=True):
    """A fault of a request."""

    where: str = ""
    """The parameter, header or path that is at fault."""
    what: str = ""
    """The problem."""
    cure: str = ""
    """The remedy."""

    def __str__(self) -> str:
        """Return it in one line."""
        return f"{self.where}: {self.what}. {self.cure}".strip()


class ErrorReply(msgspec.Struct, frozen=True):
    """The body of every answer of 400 and above."""

    error: ErrorDetail
