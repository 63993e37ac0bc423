"""Files of which a change moved nothing but imports: who moves a module edits hundreds of tests that judge as before."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable


def beyond_imports(files: Iterable[str], before: Callable[[str], str], now: Callable[[str], str]) -> set[str]:  # fmt: skip
    """Return the files that differ in more than imports. `before`, `now`: return the text of a file; "" for one that is
    not there."""
    return {
        name
        for name in files
        if not name.endswith(".py")
        or not before(name)
        or without_imports(before(name)) != without_imports(now(name))
    }


def without_imports(source: str) -> list[str]:
    """Return the lines of a module without its imports, and the empty lines that follow them."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return source.splitlines(keepends=True)
    imports = {
        line
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    kept, skipping = [], False
    for number, line in enumerate(source.splitlines(keepends=True), 1):
        skipping = number in imports or (skipping and not line.strip())
        if not skipping:
            kept.append(line)
    return kept
