"""Find the test files that a change can break, and by how many imports they are away from it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

import grimp

STARTS = re.compile(r'"-m", "([\w.]+)"')
"""A module that is started as a process of its own, which no import shows."""
NAMES = re.compile(r'"(\w+(?:\.\w+)+)(\.{)?')
"""Modules that a text names: to import them late, to patch them."""
GLOB = re.compile(r'"([\w./-]*\*[\w.-]+)"')
"""A pattern of file names."""
READS_ALL = 'rglob("*.py")'
"""In tests that read the source of whole packages, as those of the structure do."""


class Tree:
    """The Python files of a checkout: which imports, starts or reads which."""

    def __init__(self, root: Path) -> None:
        packages = sorted({path.parent.name for path in root.glob("*/*.py")})
        graph = grimp.build_graph(*packages, cache_dir=None)
        self.texts = {}
        """By module, of those that have a file."""
        self.modules: dict[str, str] = {}
        """By file, relative to the root."""
        self._users: defaultdict[str, set[str]] = defaultdict(set)
        for module in graph.modules:
            self._users[module] |= graph.find_modules_that_directly_import(module)
            path = root / module.replace(".", "/")
            file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            self.modules[file.relative_to(root).as_posix()] = module
            self.texts[module] = file.read_text(encoding="utf-8") if file.exists() else ""
        self.tests = {
            module: file for file, module in self.modules.items() if PurePosixPath(file).name.startswith("test_")
        }
        for module, text in self.texts.items():
            for other in self._named(text):
                self._users[other].add(module)
        for file, module in self.modules.items():
            if file.endswith("/conftest.py"):
                self._users[module] |= {test for test in self.tests if test.startswith(f"{module.rpartition('.')[0]}.")}

    def _named(self, text: str) -> Iterator[str]:
        """Yield the modules that a text names without importing them."""
        for name in STARTS.findall(text):
            yield from {name, f"{name}.__main__"} & self.texts.keys()
        for name, every in NAMES.findall(text):
            if every:
                yield from (one for one in self.texts if one.rpartition(".")[0] == name)
            module = name
            while module.count(".") and module not in self.texts:
                module = module.rpartition(".")[0]
            yield module

    def readers(self, file: str) -> set[str]:
        """Return the modules that name a file which is no Python, or its folder."""
        found = set()
        for named in (PurePosixPath(file), PurePosixPath(file).parent):
            if not named.name:
                continue
            name, end = re.escape(named.name), r'"(?! */ *")'
            if named == PurePosixPath(file) or "/" in str(named):
                word = re.compile(rf'(?<!"-m", )["/]{name}(?:{end}|/[{{*])')
            else:  # "docs" alone may be any word
                word = re.compile(rf'/ "{name}{end}|"{name}/[{{*]')
            above = re.compile(rf'["/]{re.escape(named.parent.name)}["/]')
            for path, module in self.modules.items():
                text = self.texts[module]
                beside = named.is_relative_to(PurePosixPath(path).parent)
                near = beside or (
                    str(named) in text if named.is_relative_to("tests") else not named.parent.name or above.search(text)
                )
                globs = beside and any(named.match(pattern) for pattern in GLOB.findall(text))
                if globs or (near and word.search(text)):
                    found.add(module)
        return found

    def reached(self, files: Iterable[str]) -> dict[str, int]:
        """Return by test file how many steps it is away from the nearest of the changed files."""
        begin = {self.modules[file] for file in files if file in self.modules}
        data = [file for file in files if not file.endswith(".py")]
        steps = dict.fromkeys(begin, 0)
        steps |= dict.fromkeys(set().union(*map(self.readers, data)) - begin, 1)
        folders = {file.partition("/")[0] for file in files if file.endswith(".py")}
        for test in self.tests.keys() - steps.keys() if folders else ():
            text = self.texts[test]
            if READS_ALL in text and (folders != {"tests"} or '"tests"' in text):
                steps[test] = 1
        return {self.tests[one]: far for one, far in self._walk(steps) if one in self.tests}

    def _walk(self, steps: dict[str, int]) -> Iterator[tuple[str, int]]:
        """Yield all modules that the given ones reach, the nearest first. What all tests share reaches none of
        them, unless it has changed itself."""
        waiting = sorted(steps, key=steps.__getitem__)
        for module in waiting:
            yield module, steps[module]
            if steps[module] and re.fullmatch(r"\w+\.conftest", module):
                continue
            for user in sorted(self._users[module] - steps.keys()):
                steps[user] = steps[module] + 1
                waiting.append(user)
