"""The tree is laid out as ARCHITECTURE.md says: rooms, no circles, pages that name files that exist."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("telemetry", "api", "power", "alerts", "collector", "aggregator", "tui", "kilowatch")
ROOTS = ("aggregator", "alerts", "collector", "power", "kilowatch", "tui")
"""Packages whose modules lie in rooms: at most five may lie at the root."""
CIRCLES: dict[frozenset[str], str] = {}
"""Circles of imports that are allowed, each with its reason."""
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md")


def imports(tree: ast.Module, modules: dict[str, Path]) -> Iterator[str]:
    """Yield each of our modules that a file imports, also for types alone or within a function."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            found = name
            while found and found not in modules:
                found = found.rpartition(".")[0]
            if found:
                yield found


def graph() -> dict[str, set[str]]:
    """Return which module imports which."""
    paths = [path for name in (*PACKAGES, "bench") for path in (ROOT / name).rglob("*.py")]
    modules = {
        str(path.relative_to(ROOT).with_suffix(""))
        .replace("/", ".")
        .removesuffix(".__init__"): path
        for path in paths
    }
    return {
        name: set(imports(ast.parse(path.read_text(encoding="utf-8")), modules)) - {name}
        for name, path in modules.items()
    }


def circles(arrows: dict[str, set[str]]) -> list[frozenset[str]]:
    """Return the sets of modules that all reach each other (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[frozenset[str]] = []

    def visit(module: str) -> None:
        order[module] = low[module] = len(order)
        stack.append(module)
        for other in arrows[module]:
            if other not in order:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], order[other])
        if low[module] == order[module]:
            cut = stack.index(module)
            if len(stack) - cut > 1:
                found.append(frozenset(stack[cut:]))
            del stack[cut:]

    for module in sorted(arrows):
        if module not in order:
            visit(module)
    return found


def test_circles_are_found() -> None:
    """The search finds a circle behind a chain, and none where there is none."""
    arrows: dict[str, set[str]] = defaultdict(set)
    arrows |= {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b"}, "e": {"a"}}
    assert circles(dict(arrows)) == [frozenset("bcd")]
    assert circles({"a": {"b"}, "b": set(), "c": {"a", "b"}}) == []


def test_no_files_import_each_other_in_a_circle() -> None:
    """A circle is one concept in several files, or a border that does not hold."""
    found = [circle for circle in circles(graph()) if circle not in CIRCLES]
    assert not found, "\n".join(", ".join(sorted(circle)) for circle in found)


@pytest.mark.parametrize("package", ROOTS)
def test_modules_lie_in_rooms(package: str) -> None:
    """A folder with thirty loose modules says nothing about what it does."""
    loose = [path.name for path in (ROOT / package).glob("*.py") if path.name != "__init__.py"]
    assert len(loose) <= 5, ", ".join(sorted(loose))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_files_that_exist(page: str) -> None:
    """Each path in backticks or in a link of a page is there."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:[\w-]+/)+[\w.*-]*)`", text) + re.findall(r"\]\(([\w./-]+)\)", text)
    missing = [name for name in named if not list(ROOT.glob(name.rstrip("/")))]
    assert not missing, ", ".join(missing)
    assert named


LOSING = {
    "wait_for": "on Python 3.11 one that comes together with the result (python/cpython#86296); "
    "write `async with asyncio.timeout(...)`",
    "TaskGroup": "for ever what a task of it loses; take `telemetry.tasks.TaskGroup`",
}
"""Names of asyncio that no package uses, each with which cancellation it loses."""


def losing(source: str) -> list[tuple[int, str]]:
    """Return line and name of each use of such a name."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="asyncio"), attr=name) if name in LOSING:
                found.append((node.lineno, name))
            case ast.ImportFrom(module=str(module), names=names) if (
                module.split(".")[0] == "asyncio"
            ):
                found += [(node.lineno, each.name) for each in names if each.name in LOSING]
    return found


def test_no_package_loses_a_cancellation() -> None:
    """A task group cancels once: with a task that loses it, the group waits for ever."""
    assert losing("import asyncio\nasync def f():\n    await asyncio.wait_for(g(), 1)\n") == [
        (3, "wait_for")
    ]
    assert losing("from asyncio import sleep, wait_for\n") == [(1, "wait_for")]
    assert losing("async def f(condition):\n    await condition.wait_for(g)\n") == []
    found = [
        f"{path.relative_to(ROOT)}:{line}: asyncio.{name} loses {LOSING[name]}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if path != ROOT / "telemetry/tasks.py"  # it has the group that does not
        for line, name in losing(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)
