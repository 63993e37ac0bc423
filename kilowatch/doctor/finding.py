"""The result of one check."""

from __future__ import annotations

import msgspec


class DoctorFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one check."""

    subject: str
    level: str
    """`ok`, `warning` (works, but) or `fault` (does not work)."""
    text: str
    cure: str = ""
    """A command or a change that corrects it."""
