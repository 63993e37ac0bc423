"""Statements of a file of Python, at any depth: a tenth of the nodes that `ast.walk` yields."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements, handlers and cases below a node."""
    for field in ("body", "handlers", "cases", "orelse", "finalbody"):
        for child in getattr(node, field, ()):
            yield child
            yield from statements(child)
