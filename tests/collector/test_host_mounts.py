"""Network file systems: the kernel's list, servers that do not answer, and what should be mounted."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.host.mounts import DEADLINE, MOST, PERIOD, TYPES, Counts, Mount, Mounts, fstab, mounted
from tests.kit.waiting import wait_until

ROOT = Path(__file__).parents[2]
SCRATCH = "40 28 0:52 / /scratch rw,relatime shared:9 - nfs4 filer:/export/scratch rw,vers=4.2\n"
LIST = (
    "28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
    "33 28 0:29 / /mnt/auto rw,relatime shared:7 - autofs systemd-1 rw,fd=55\n"
    r"41 28 0:53 / /data/a\040b rw shared:10 - lustre 10.0.0.1@o2ib:/fs rw,flock"
    "\n" + SCRATCH
)


def write(root: Path, mountinfo: str, table: str = "") -> None:
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "etc").mkdir(exist_ok=True)
    (root / "proc/self/mountinfo").write_text(mountinfo)
    (root / "etc/fstab").write_text(table)


class Clock:
    """A time that is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def until(mounts: Mounts, done: Callable[[Counts], bool]) -> Counts:
    """Return the first counts that are as wanted: a child takes a moment."""
    return wait_until(lambda: found if done(found := mounts.counts()) else None)


def told(mounts: Mounts) -> list[str]:
    return [event.message for event in mounts.drain_events()]


def test_the_kernels_list_is_read_with_its_escapes_and_covered_mounts() -> None:
    found = mounted(LIST)
    assert found["/data/a b"] == Mount("/data/a b", "lustre", "10.0.0.1@o2ib:/fs")
    assert str(found["/scratch"]) == "/scratch (nfs4 of filer:/export/scratch)"
    covered = LIST + "50 28 0:60 / /scratch ro - tmpfs tmpfs ro\n"
    assert mounted(covered)["/scratch"].type == "tmpfs"


def test_what_is_mounted_at_boot_alone_is_expected() -> None:
    found = fstab(
        "# server\nfiler:/home /home nfs4 defaults 0 0\nfiler:/b /b/ nfs noauto 0 0\n"
        "filer:/c /c nfs x-systemd.automount,_netdev 0 0\nUUID=1 / ext4 defaults 0 1\nbroken\n"
        "10.0.0.1@o2ib:/fs /a\\040b/ lustre _netdev 0 0\n"
    )
    assert [mount.path for mount in found] == ["/home", "/a b"]


@pytest.mark.parametrize(
    ("source", "host"),
    [
        ("filer:/home", "filer"), ("10.0.0.1@o2ib:10.0.0.2@o2ib:/fs", "10.0.0.1@o2ib"),
        ("[fd00::7]:/export", "[fd00::7]"), ("//nas/share", "nas"), ("gpfs0", "gpfs0"), ("s3fs", "s3fs"),
    ],
)  # fmt: skip
def test_who_serves_a_mount_is_known_by_its_source(source: str, host: str) -> None:
    assert Mount("/x", "nfs", source).host == host


PIECES = (SCRATCH, " ", "\n", " - ", "/x", "nfs", "ext4", "noauto", "#", "\\040")


@given(st.text(max_size=200) | st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_no_text_breaks_a_parser(text: str) -> None:
    assert {mount.type for mount in fstab(text)} <= TYPES
    with contextlib.suppress(ValueError, IndexError):  # an `error` gap
        assert all(mount.path == path for path, mount in mounted(text).items())


def test_a_mount_that_does_not_answer_fails_has_one_child_and_is_told_once(tmp_path: Path) -> None:
    write(tmp_path, LIST)
    clock, started = Clock(), tmp_path / "started"
    # each child writes a line; that of /scratch stays
    script = f'echo "$1" >> {started}; [ "$1" != /scratch ] || [ -e {tmp_path}/back ] || exec sleep 600'
    mounts = Mounts(tmp_path, ("sh", "-c", script, "probe"), clock, lambda: 7)
    try:
        assert mounts.counts() == Counts(2, None, 0)
        until(mounts, lambda _: started.exists() and len(started.read_text().split("\n")) == 3)
        clock.now += DEADLINE - 1
        assert mounts.counts().failing is None  # one has answered, the other has time
        clock.now += 1
        assert mounts.counts() == Counts(2, 1, 0)
        assert told(mounts) == ["/scratch (nfs4 of filer:/export/scratch) does not answer"]
        (tmp_path / "back").touch()  # its server returns, and the killed child ends
        until(mounts, lambda _: started.read_text().count("/scratch") == 1)
        clock.now += PERIOD
        assert until(mounts, lambda found: found.failing == 0) == Counts(2, 0, 0)
        [event] = mounts.drain_events()
        assert event.message == "/scratch (nfs4 of filer:/export/scratch) is well again"
        assert (event.kind, event.at) == ("mount", 7)
        assert event.data == {
            "what": "/scratch", "state": "well", "metric": "node_network_mounts_failing",
            "unit": "/scratch (nfs4 of filer:/export/scratch)", "server": "filer",
        }  # fmt: skip
        assert started.read_text().count("/scratch") == 2
    finally:
        mounts.close()


@pytest.mark.parametrize(
    ("complaint", "failing"),
    [
        ("Stale file handle", 1),
        ("Transport endpoint is not connected", 1),
        ("Host is down", 1),
        ("Permission denied", 0),  # the server has answered
        ("No such file or directory", 0),
    ],
)
def test_what_the_child_says_decides(tmp_path: Path, complaint: str, failing: int) -> None:
    write(tmp_path, SCRATCH)
    clock, answered = Clock(), tmp_path / "answered"
    script = f'echo "stat: cannot read file system information for x: {complaint}" >&2; echo >> {answered}; exit 1'
    mounts = Mounts(tmp_path, ("sh", "-c", script), clock)

    def asked_again(_: Counts) -> bool:
        clock.now += PERIOD  # at each look, since the first answer may not have been read yet
        return answered.exists() and answered.read_text().count("\n") >= 2

    try:
        until(mounts, asked_again)
        until(mounts, lambda counts: counts == Counts(1, failing, 0))
    finally:
        mounts.close()


def test_a_mount_of_fstab_that_is_not_there_is_missing_until_it_is(tmp_path: Path) -> None:
    write(tmp_path, "", "filer:/export/scratch /scratch nfs4 defaults 0 0\n")
    mounts = Mounts(tmp_path, ("true",), Clock())
    try:
        assert mounts.counts() == Counts(0, 0, 1)
        assert told(mounts) == ["/scratch (nfs4 of filer:/export/scratch) is not mounted"]
        write(tmp_path, SCRATCH, "filer:/export/scratch /scratch nfs4 defaults 0 0\n")
        assert until(mounts, lambda found: found.failing is not None) == Counts(1, 0, 0)
        assert told(mounts) == ["/scratch (nfs4 of filer:/export/scratch) is well again"]
    finally:
        mounts.close()


def test_a_mount_that_is_taken_away_while_it_hangs_is_over(tmp_path: Path) -> None:
    write(tmp_path, SCRATCH)
    clock = Clock()
    mounts = Mounts(tmp_path, ("sh", "-c", "exec sleep 600"), clock)
    try:
        mounts.counts()
        clock.now += DEADLINE
        assert mounts.counts().failing == 1
        write(tmp_path, "")
        assert mounts.counts() == Counts(0, 0, 0)
    finally:
        mounts.close()


def test_an_automounter_with_hundreds_has_a_limit_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = (f"{n} 28 0:{n} / /home/u{n} rw - nfs4 filer:/home/u{n} rw\n" for n in range(100, 300))
    write(tmp_path, "".join(lines))
    mounts = Mounts(tmp_path, ("true",), Clock())
    try:
        assert mounts.counts().mounts == MOST
        assert "200 network mounts: 64 of them are watched" in caplog.text
    finally:
        mounts.close()


_HUNG = """
import ctypes, json, os, sys, time
from pathlib import Path
from collector.host.mounts import DEADLINE, Mounts
libc = ctypes.CDLL(None, use_errno=True)
def must(result):
    if result: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
must(libc.unshare(0x20000))  # mounts of our own
must(libc.mount(b"none", b"/", None, 0x44000, None))
os.mkdir(sys.argv[1])
server = os.open("/dev/fuse", os.O_RDWR)  # never read: it answers nothing
options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
must(libc.mount(b"filer:/x", sys.argv[1].encode(), b"fuse.juicefs", 0, options))
now = [0.0]
mounts = Mounts(Path("/"), monotonic=lambda: now[0])
before = mounts.counts()
ends = time.monotonic() + 60
def state():
    child = next(iter(mounts._tries.values())).child
    return child, Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0]
looks = ""  # a child that begins sleeps so too, for its own pages, and for a moment
while looks[-10:] != "D" * 10 and time.monotonic() < ends:
    time.sleep(0.05)
    looks += state()[1]
now[0] += DEADLINE
hung = mounts.counts()
os.close(server)  # the connection ends: every waiter gets an error
state()[0].wait(60)
mounts.counts()
now[0] += 100
while mounts._tries == {} and time.monotonic() < ends: mounts.counts()
after = mounts.counts()
mounts.close()
print(json.dumps([before, looks, hung, [event.message for event in mounts.drain_events()]]))
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK),
    reason="needs root and /dev/fuse to mount a file system that never answers",
)
def test_a_real_file_system_that_never_answers_is_found_and_holds_nobody(tmp_path: Path) -> None:
    """The child is in uninterruptible sleep; the watcher goes on."""
    ended = subprocess.run(
        [sys.executable, "-c", _HUNG, str(tmp_path / "mnt")],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    before, looks, hung, messages = json.loads(ended.stdout)
    assert before[0] == hung[0] >= 1
    assert looks.endswith("D" * 10), looks
    assert (before[1], hung[1]) == (None, 1)
    assert messages[0] == f"{tmp_path}/mnt (fuse.juicefs of filer:/x) does not answer"
