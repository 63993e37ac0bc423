"""A bare Debian in a folder, of this machine's release and from its own mirror."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

BARE = pytest.mark.skipif(
    (os.geteuid() != 0 or shutil.which("debootstrap") is None) and not os.environ.get("CI"),
    reason="needs root and debootstrap: sudo sh deploy/packages.sh",
)


def debootstrap(folder: Path, *packages: str) -> None:
    """Make a folder with the packages that every Debian has, and these."""
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", f"Codename: {release}"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert listed, f"no source of apt has {release}: apt-get update"
    include = [f"--include={','.join(packages)}"] if packages else []
    subprocess.run(
        ["unshare", "--mount", "debootstrap", "--variant=minbase", *include, release, str(folder), listed[0]],
        check=True,
        stdout=subprocess.DEVNULL,
    )
