"""Packages from npm for the tests of the pages, by a lock file: rules of accessibility, a checker of types."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

LOCKED = Path(__file__).parent / "npm"
FILES = ("package.json", "package-lock.json", ".npmrc")
needed = pytest.mark.skipif(shutil.which("npm") is None, reason="no npm: apt-get install npm")


def node_modules() -> Path:
    """Return the folder of the packages, fetched once for each content of the lock file."""
    key = hashlib.sha256(b"".join((LOCKED / name).read_bytes() for name in FILES)).hexdigest()[:16]
    folder = ROOT / "build" / "npm" / key
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers ask at once
        if not (folder / "done").exists():
            for name in FILES:
                shutil.copy(LOCKED / name, folder)
            fetch = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            try:
                subprocess.run(fetch, cwd=folder, check=True, timeout=120, capture_output=True, text=True)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                pytest.skip(f"npm could not fetch what its lock file names: {error}: {error.stderr}")
            (folder / "done").touch()
    return folder / "node_modules"
