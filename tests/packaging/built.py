"""The wheel and the Debian package, built as a release builds them: from the files that git knows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.runtime.release import STAMP, commit_of

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
ENVIRONMENT["PIP_COMPILE"] = "0"
"""Without the checkout in front of what is installed, and without byte code of what nobody imports."""


def wheel(folders: pytest.TempPathFactory) -> Path:
    """Return the wheel of the checkout's files, without what it needs, built once in a run of the tests."""
    with _once(folders, "wheel") as folder:
        if not list(folder.glob("kilowatch-*.whl")):
            source = folder / "source"
            source.mkdir(parents=True)
            subprocess.run(
                ["sh", "-c", 'git ls-files -z | xargs -0 tar -cf - --dereference | tar -xf - -C "$0"', str(source)],
                cwd=ROOT,
                check=True,
            )
            stamp = source / "telemetry/runtime" / STAMP  # as the scripts of packages do
            stamp.write_text(commit_of(ROOT, ROOT))
            subprocess.run(
                [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(source)],
                check=True,
                capture_output=True,
            )
            shutil.rmtree(source)
    (found,) = folder.glob("kilowatch-*.whl")
    return found


def of_release(made: Path, folder: Path, release: str) -> Path:
    """Return a copy of a wheel under the number of another release."""
    old = made.name.split("-")[1]
    copy = folder / made.name.replace(old, release, 1)
    with zipfile.ZipFile(made) as given, zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED) as taken:
        for name in given.namelist():
            text, meta = given.read(name), f"kilowatch-{old}.dist-info/"
            if name == f"{meta}METADATA":
                text = text.replace(f"\nVersion: {old}\n".encode(), f"\nVersion: {release}\n".encode())
            elif name == f"{meta}RECORD":  # what is written there anew has no sum
                text = re.sub(rb"(?m)^(\S+/METADATA),.*$", rb"\1,,", text)
                text = text.replace(meta.encode(), f"kilowatch-{release}.dist-info/".encode())
            taken.writestr(name.replace(meta, f"kilowatch-{release}.dist-info/"), text)
    return copy


def debian_package(folders: pytest.TempPathFactory) -> Path:
    """Return the Debian package, built once in a run of the tests; $KILOWATCH_DEB names one that is built already."""
    if built := os.environ.get("KILOWATCH_DEB"):
        return Path(built)
    with _once(folders, "debian-package") as folder:
        if not list(folder.glob("kilowatch_*.deb")):
            subprocess.run(["sh", "deploy/debian/build.sh", str(folder)], cwd=ROOT, check=True)
    (found,) = folder.glob("kilowatch_*.deb")
    return found


@contextlib.contextmanager
def _once(folders: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """Yield a folder that all workers of a run share, to one of them at a time."""
    of_the_run = folders.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        of_the_run = of_the_run.parent
    with (of_the_run / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield of_the_run / name
