"""Tests that take minutes and hold a few files alone: the gate leaves them out where none of these changed.

A night's run takes all (`make test-systems` too). What is left out has another guard in each gate: of packages the
test of the wheel, of campaigns the tests of each part that they break, of the gate its other files of tests.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.gate.same_code import changed_code


class Group(NamedTuple):
    """Files of tests, and what they hold."""

    files: tuple[str, ...]
    sources: tuple[str, ...]
    """Files, and folders with a slash; the tests are sources of themselves."""


PACKAGES = Group(
    (
        "tests/kilowatch/test_debian_package.py",
        "tests/packaging/test_image.py",
        "tests/packaging/test_role.py",
        "tests/packaging/test_rpm.py",
    ),
    (
        "constraints.txt", "deploy/ansible/", "deploy/container/", "deploy/debian/", "deploy/rpm/", "deploy/systemd/",
        "tests/bare_debian.py", "tests/packaging/built.py",
    ),
)  # fmt: skip
"""Tests of packages and images, and what makes them. The other folders of `deploy` lie in them as they are."""
GATE = Group(("tests/gate/test_gate.py",), (".ci/", "Makefile", "tests/conftest.py", "tests/gate/", "tests/kit/"))
"""Tests of the gate, each of which runs pytest."""
PATH_OF_DATA = (
    "aggregator/assembly/", "aggregator/evidence/", "aggregator/ingest/", "aggregator/load/", "aggregator/mqtt/",
    "aggregator/scheduler/", "aggregator/service.py", "aggregator/store/", "alerts/delivery/", "alerts/incidents/",
    "alerts/journal/", "collector/commands/", "collector/publish/", "collector/ring/", "collector/sampling/",
    "collector/service.py", "constraints.txt", "telemetry/files/", "telemetry/runtime/", "telemetry/wire/",
)  # fmt: skip
"""Sources that carry a frame from its sampling into the store, and an alert to its receiver."""
MEMBERS = Group(
    ("tests/cluster/test_loop.py", "tests/cluster/test_rows.py", "tests/cluster/test_try.py"),
    ("aggregator/cluster/", "aggregator/site/", "aggregator/remote/", "tests/cluster/", *PATH_OF_DATA),
)
"""Several aggregators, each row of their failure matrix."""
FAULTS = Group(
    (
        "tests/faults/test_circuit_faults.py",
        "tests/faults/test_disk.py",
        "tests/faults/test_given_hours.py",
        "tests/faults/test_overload.py",
        "tests/faults/test_pages.py",
        "tests/faults/test_processes.py",
        "tests/faults/test_readers.py",
        "tests/faults/test_storm.py",
        "tests/faults/test_wire.py",
    ),
    ("aggregator/electrical/", "aggregator/meters/", "power/live/", "power/meters/", "tests/faults/", *PATH_OF_DATA),
)
"""The campaign of `make faults`, each fault once."""
GROUPS = (PACKAGES, GATE, MEMBERS, FAULTS)
PROJECT = "pyproject.toml"
"""File of which `packaged` alone decides what runs: linters and contracts have their settings in it too."""

Git = Callable[..., str]
"""Takes the arguments of git and returns what it prints; nothing where it fails."""


def began(git: Git, base: str) -> str:
    """Return the commit at which the change began: the merge base; where that is HEAD itself, as in a clone of what
    is offered, the last one that is a day older. Empty where git knows neither."""
    head, merged = git("rev-parse", "HEAD"), git("merge-base", "HEAD", base)
    if merged and merged != head:
        return merged
    at = git("show", "-s", "--format=%ct", "HEAD")
    return git("rev-list", "-1", f"--before={int(at) - 86_400}", "HEAD") if at else ""


def changed_since(git: Git, begin: str) -> list[str]:
    """Return the files whose code, or what else they hold, differs from a commit, and those that git does not know."""
    named = git("diff", "--name-only", begin), git("ls-files", "--others", "--exclude-standard")
    files = [name for text in named for name in text.splitlines()]
    return changed_code(files, lambda name: git("show", f"{begin}:{name}"), text_now, imports=True)


def left_out(git: Git, begin: str) -> tuple[str, ...]:
    """Return the files of tests that need not run for a change that began at a commit; none where that is not known."""
    if not begin:
        return ()
    changed = changed_since(git, begin)
    if PROJECT in changed and packaged(git("show", f"{begin}:{PROJECT}")) != packaged(text_now(PROJECT)):
        return ()
    return tuple(
        file
        for group in GROUPS
        if not any(name.startswith((*group.sources, *group.files)) for name in changed)
        for file in group.files
    )


def packaged(text: str) -> dict[str, Any]:
    """Return what a pyproject.toml says of what is installed."""
    settings = tomllib.loads(text)
    tools = settings.get("tool", {})
    return {
        "build-system": settings.get("build-system"),
        "project": settings.get("project"),
        "setuptools": tools.get("setuptools"),
    }


def text_now(name: str) -> str:
    """Return the text of a file; nothing where it is not there."""
    path = Path(name)
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
