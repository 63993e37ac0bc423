"""Readings by columns, as JSON has them."""

from __future__ import annotations

Numbers = list[float | None]
Gaps = dict[str, dict[str, str]]
"""By metric, by position (or `*` for the commonest): why a null is one."""
