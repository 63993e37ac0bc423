"""A rootless container of Podman without an image: one static program, as the user `nobody`.

Podman gives a rootless container a cgroup of its own where its user has been given a part of the unified
hierarchy, as systemd does at a login. Nothing logs in here, so the test gives `nobody` such a part, under the
names that systemd uses, in a mount namespace in which the unified hierarchy alone is at /sys/fs/cgroup.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.second_user import NOBODY

needs_podman = pytest.mark.skipif(
    (any(shutil.which(each) is None for each in ("podman", "crun", "busybox")) or os.geteuid() != 0)
    and not os.environ.get("CI"),
    reason="root, and apt-get install podman crun busybox-static",
)
PATIENCE = 240.0
"""Seconds: more than any machine needs, also one that has to read podman from a slow disk; no test waits for it."""
_START = """
set -e
mount --make-rprivate /
mount -t cgroup2 none /sys/fs/cgroup
parent=/sys/fs/cgroup/{parent}
mkdir -p "$parent/app.slice"
chown -R {user}:{user} "$parent"
echo $$ > "$parent/app.slice/cgroup.procs"
exec setpriv --reuid={user} --regid={user} --clear-groups env HOME={folder}/home \\
    XDG_RUNTIME_DIR={folder}/run podman --cgroup-manager=cgroupfs --runtime=crun --storage-driver=vfs \\
    run --detach --network=none --cgroup-parent=/{parent} --rootfs {folder}/root /bin/sleep 3600
"""
_STOP = """
mount -t cgroup2 none /sys/fs/cgroup
for each in $(find /sys/fs/cgroup/{slice} -name cgroup.procs -exec cat {{}} +); do
    kill -KILL "$each"
done
for _ in $(seq 100); do
    find /sys/fs/cgroup/{slice} -depth -type d -exec rmdir {{}} + 2>/dev/null && exit 0
    sleep 0.05
done
"""


class Container:
    """A container that runs."""

    def __init__(self, identity: str, parent: str) -> None:
        self.id = identity
        """64 hexadecimal digits."""
        self.parent = parent
        """Cgroup of its user's service."""
        self.pid = _pid(identity)
        """Of its program, on the host."""

    def kill(self) -> None:
        """End its program, and wait until it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE
        while Path(f"/proc/{self.pid}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)


def _pid(identity: str) -> int:
    """Return the process whose cgroup has the id of a container, once it runs the program: its monitor's has not,
    and before it runs the program it is crun."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for path in Path("/proc").glob("[0-9]*/cgroup"):
            with contextlib.suppress(OSError):
                if f"libpod-{identity}" not in path.read_text():
                    continue
                if (path.parent / "comm").read_text() == "sleep\n":
                    return int(path.parent.name)
        time.sleep(0.02)
    raise TimeoutError(f"no process is in the cgroup of the container {identity}")


@contextlib.contextmanager
def running() -> Iterator[Container]:
    """Run a container meanwhile."""
    folder = Path(tempfile.mkdtemp(prefix="kwp-", dir="/tmp"))
    part = f"kilowatch-{secrets.token_hex(4)}.slice"
    parent = f"{part}/user.slice/user-{NOBODY}.slice/user@{NOBODY}.service"
    try:
        for name in (
            "home",
            "run",
            "root/bin",
            "root/proc",
            "root/sys",
            "root/dev",
            "root/etc",
            "root/tmp",
            "root/run",
        ):
            (folder / name).mkdir(parents=True)
        shutil.copy(str(shutil.which("busybox")), folder / "root/bin/sleep")
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        script = _START.format(parent=parent, user=NOBODY, folder=folder)
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script],
            cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        yield Container(done.stdout.split()[-1], parent)
    finally:
        subprocess.run(["unshare", "--mount", "sh", "-c", _STOP.format(slice=part)], check=False, timeout=PATIENCE)
        _end_pause(folder / "run/libpod/tmp/pause.pid")
        shutil.rmtree(folder, ignore_errors=True)


def _end_pause(file: Path) -> None:
    """End the process that keeps the namespaces of a user's containers."""
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(file.read_text()), signal.SIGKILL)
