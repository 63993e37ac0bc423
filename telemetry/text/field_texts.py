"""The sentences under the fields of a struct: written once, and shown to readers of the code, of the
API's document and of the reference pages.

Python drops a field's docstring, so it is read from the source.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise


def field_texts(kind: type) -> dict[str, str]:
    """Return the sentences under the fields of a type and of those that it extends, by field."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        found |= _texts(base.__module__).get(base.__name__, {})
    return found


@cache
def _texts(module: str) -> dict[str, dict[str, str]]:
    """Return the sentences of each class of a module whose source is at hand."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):  # written in C
        return {}
    return {node.name: _sentences(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _sentences(kind: ast.ClassDef) -> dict[str, str]:
    """Return each string right below an annotated name, by that name."""
    found: dict[str, str] = {}
    for field, text in pairwise(kind.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            found[field.target.id] = " ".join(text.value.value.split())
    return found
