"""Tests that can not fail: neither they nor a function of the tests that they use assert anything."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.kit.statements import statements

ROOT = Path(__file__).resolve().parents[2]
TEST = re.compile(r"^( *)(?:async )?def (test_\w+)\(", re.MULTILINE)
PLAIN = re.compile(r"^ +assert\b|\bpytest\.(raises|warns|fail)\(|\bnp\.testing\.assert_", re.MULTILINE)
"""Text of a test that fails by itself: to parse all files takes ten seconds, and few tests leave it to another function."""


@dataclass(frozen=True)
class Module:
    """A file of the tests."""

    defined: dict[str, list[ast.AST]] = field(default_factory=lambda: defaultdict(list))
    """Functions by name, methods with a dot before it, and values of the module, which may be tables of functions."""
    imported: set[Path] = field(default_factory=set)
    """Files of the tests that it takes names from."""


@cache
def read(path: Path) -> Module:
    """Parse a file of the tests."""
    tree, module = ast.parse(path.read_text("utf-8")), Module()
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            method = any(each.arg in {"self", "cls"} for each in node.args.args[:1])
            module.defined[f".{node.name}" if method else node.name].append(node)
        elif isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("tests."):
            file = ROOT / str(node.module).replace(".", "/")
            found = (file.with_suffix(".py"), *(file / f"{each.name}.py" for each in node.names))
            module.imported.update(each for each in found if each.is_file())
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                module.defined[name].append(node)
            case _:
                pass
    return module


def asserts(node: ast.AST, path: Path, seen: set[ast.AST]) -> bool:
    """Return whether what a file defines asserts, or something of the tests that it uses and that was not seen yet."""
    seen.add(node)
    used: set[str] = set()
    for each in ast.walk(node):
        match each:
            case ast.Assert() | ast.Attribute(value=ast.Name(id="pytest"), attr="raises" | "warns" | "fail"):
                return True
            case ast.Attribute(value=ast.Attribute(attr="testing")):  # np.testing.assert_allclose
                return True
            case ast.Name(id=name):
                used.add(name)
            case ast.Attribute(attr=name):
                used.add(f".{name}")
            case _:
                pass
    for file in (path, *read(path).imported):
        defined, names = read(file).defined, used
        if file != path:  # it may be imported as a whole: `module.function`
            names = used | {name.removeprefix(".") for name in used}
        others = (other for name in names & defined.keys() for other in defined[name] if other not in seen)
        if any(asserts(other, file, seen) for other in others):
            return True
    return False


def without_assertion(path: Path) -> list[str]:
    """Return the tests of a file that assert nothing."""
    source = path.read_text("utf-8")
    doubtful = set()
    for test in TEST.finditer(source):
        behind = re.compile(rf"^ {{,{len(test[1])}}}[^\s)]", re.MULTILINE).search(source, test.end())
        if not PLAIN.search(source, test.end(), behind.start() if behind else len(source)):
            doubtful.add(test[2])
    defined = read(path).defined if doubtful else {}
    return [
        name
        for name in sorted(doubtful)
        for node in (*defined.get(name, ()), *defined.get(f".{name}", ()))
        if not asserts(node, path, set())
    ]
