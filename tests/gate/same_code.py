"""Files whose code a change left as it was: laid out anew, with other comments, or with other imports.

Who moves a module edits the imports of hundreds of tests that judge as before; who sets another length of line
edits all files.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable


def changed_code(
    files: Iterable[str], before: Callable[[str], str], now: Callable[[str], str], *, imports: bool
) -> list[str]:
    """Return the files whose code differs; all that are no code. `before`, `now`: return the text of a file; "" for
    one that is not there. `imports`: whether these are code too."""
    return [
        name
        for name in files
        if not name.endswith(".py")
        or not (was := before(name))
        or code_of(was, imports=imports) != code_of(now(name), imports=imports)
    ]


def code_of(source: str, *, imports: bool) -> str:
    """Return what a module says, however it is laid out: all of its source where that is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return source
    return ast.dump(tree if imports else _WithoutImports().visit(tree))


class _WithoutImports(ast.NodeTransformer):
    def visit_Import(self, node: ast.Import) -> None:
        """Leave it out."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Leave it out."""
