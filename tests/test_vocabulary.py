"""The production tree is written in the words of docs/glossary.toml, and none of those retired."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.kit.packages import PACKAGES
from tests.kit.statements import statements

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = tomllib.loads((ROOT / "docs" / "glossary.toml").read_text(encoding="utf-8"))
VAGUE = ("It", "They", "One", "Those", "All", "Nobody", "Somebody", "Let", "Less", "Back", "What")
"""First words of a docstring that do not name its object."""
VERBS = ("take", "look", "judge", "said")
"""Verbs of everything and nothing: at most two classes may have a public method of such a name."""
POWER_BRAKE = re.compile(r"power_?brake|hw_?brake|brake_?slowdown", re.IGNORECASE)
"""NVML's own word for a clock limit reason."""


@cache
def trees() -> dict[str, ast.Module]:
    """Return every production file, parsed, by its path from the root."""
    paths = (path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py")))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each name that a file defines, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.alias(asname=str(name)):
                yield 0, name


def words(name: str) -> set[str]:
    """Return the words of an identifier or file name: split at `_` and at a change of case."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a file: of modules, classes, functions, fields and constants."""
    for node in (tree, *statements(tree)):
        body = getattr(node, "body", None)
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if getattr(node, "name", "").startswith("_"):
            continue
        for number, statement in enumerate(body or []):
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
                and (number == 0 or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
            ):
                yield statement.lineno, statement.value.value.strip()


@pytest.mark.parametrize("package", PACKAGES)
def test_no_identifier_or_file_has_a_retired_word(package: str) -> None:
    """Words that were kilowatch's private language stay retired."""
    retired = GLOSSARY["retired"]
    found = {
        f"{path}:{line}: {name} says {word!r}: {retired[word]}"
        for path, tree in trees().items()
        if path.startswith(f"{package}/")
        for line, name in [(0, path.removesuffix(".py").replace("/", "_")), *names(tree)]
        for word in words(POWER_BRAKE.sub("", name)) & retired.keys()
    }
    assert not found, "\n".join(sorted(found))


def test_no_class_name_stands_for_two_things() -> None:
    """A reader who searches for a class finds one."""
    places = defaultdict(list)
    for folder in (*PACKAGES, "bench", "deploy", "docs", "grafana"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            tree = trees().get(name) or ast.parse(path.read_text(encoding="utf-8"))
            for node in statements(tree):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(f"{name}:{node.lineno}")
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert not twice, "\n".join(f"{name}: {', '.join(found)}" for name, found in twice.items())


@pytest.mark.parametrize("verb", VERBS)
def test_a_vague_verb_names_few_methods(verb: str) -> None:
    """`take` says nothing: add, receive, consume, drain and claim say what happens."""
    found = [
        f"{path}:{node.lineno}: {node.name}.{verb}"
        for path, tree in trees().items()
        for node in statements(tree)
        if isinstance(node, ast.ClassDef)
        for each in node.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == verb
    ]
    assert len(found) <= 2, "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_docstring_names_its_object(package: str) -> None:
    """An imperative or a noun phrase, never a bare pronoun."""
    found = [
        f"{path}:{line}: {text.splitlines()[0]}"
        for path, tree in trees().items()
        if path.startswith(f"{package}/")
        for line, text in docstrings(tree)
        if re.match(rf"({'|'.join(VAGUE)})\b", text)
    ]
    assert not found, "\n".join(found)
