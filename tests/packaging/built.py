"""The wheel and the Debian package, built as a release builds them: from the files that git knows."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from telemetry.runtime.release import STAMP, commit_of

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
"""Without the checkout in front of what is installed."""


def wheel(folder: Path, release: str | None = None) -> Path:
    """Build the wheel of the checkout's files, without what it needs; return its path. `release`: its version,
    in place of the checkout's."""
    source = folder / "source"
    source.mkdir(parents=True)
    subprocess.run(
        ["sh", "-c", 'git ls-files -z | xargs -0 tar -cf - --dereference | tar -xf - -C "$0"', str(source)],
        cwd=ROOT, check=True,
    )  # fmt: skip
    (source / "telemetry/runtime" / STAMP).write_text(
        commit_of(ROOT, ROOT)
    )  # as the packages' scripts do
    if release is not None:
        project = source / "pyproject.toml"
        text = re.sub(
            r'(?m)^version = ".*"$', f'version = "{release}"', project.read_text(), count=1
        )
        project.write_text(text)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(source)],
        check=True, capture_output=True,
    )  # fmt: skip
    (found,) = folder.glob("kilowatch-*.whl")
    return found


def debian_package(folders: pytest.TempPathFactory) -> Path:
    """Return the Debian package, built once in a run of the tests; $KILOWATCH_DEB names one that is built already."""
    if built := os.environ.get("KILOWATCH_DEB"):
        return Path(built)
    of_the_run = folders.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        of_the_run = of_the_run.parent
    folder = of_the_run / "debian-package"
    with (of_the_run / "debian-package.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(folder.glob("kilowatch_*.deb")):
            subprocess.run(["sh", "deploy/debian/build.sh", str(folder)], cwd=ROOT, check=True)
    (found,) = folder.glob("kilowatch_*.deb")
    return found
