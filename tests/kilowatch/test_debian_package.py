"""The Debian package: built, installed into an empty root and into a bare Debian, run from there, and removed."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gzip
import hashlib
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bare_debian import BARE, debootstrap
from tests.kit import waiting
from tests.packaging.built import debian_package
from tests.tui.test_robustness import follow

ROOT = Path(__file__).parents[2]
BASE = Path("/usr/bin/python3")

pytestmark = [
    pytest.mark.systems,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        shutil.which("dpkg-deb") is None or not BASE.exists(), reason="not a Debian machine with its python3"
    ),
]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return debian_package(tmp_path_factory)


def dpkg(root: Path, *arguments: str) -> None:
    """dpkg in an empty root: scripts run outside of it, with $DPKG_ROOT, and nothing else is installed."""
    subprocess.run(
        ["dpkg", f"--root={root}", "--log=/dev/null", "--force-script-chrootless",
         "--force-depends", "--force-not-root", *arguments],
        check=True, capture_output=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def installed(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty root with the package, and with data, settings and nothing else."""
    root = tmp_path_factory.mktemp("root")
    for name in ("var/lib/dpkg/updates", "var/lib/dpkg/info", "var/lib/kilowatch"):
        (root / name).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    (root / "var/lib/dpkg/available").touch()
    (root / "var/lib/kilowatch/ring").write_text("data")
    dpkg(root, "-i", str(package))
    yield root
    shutil.rmtree(root)


def files(root: Path) -> set[str]:
    """Files and links of a root, without dpkg's own."""
    found = (path for path in root.rglob("*") if path.is_symlink() or path.is_file())
    return {name for path in found if not (name := str(path.relative_to(root))).startswith("var/lib/dpkg/")}


def test_it_says_what_it_needs(package: Path) -> None:
    fields = subprocess.run(["dpkg-deb", "-f", str(package)], check=True, capture_output=True, text=True).stdout
    assert f"Depends: {BASE.resolve().name}\n" in fields
    assert "Package: kilowatch\n" in fields


def test_units_completion_and_manual_are_where_debian_looks(installed: Path) -> None:
    found = files(installed)
    assert {
        "usr/bin/kilowatch",
        "usr/lib/systemd/system/kilowatch-collector.service",
        "usr/lib/systemd/system/kilowatch-aggregator.service",
        "usr/share/bash-completion/completions/kilowatch",
        "usr/share/man/man1/kilowatch.1.gz",
        "usr/share/doc/kilowatch/deploy.md",
    } <= found
    manual = gzip.decompress((installed / "usr/share/man/man1/kilowatch-nodes-retire.1.gz").read_bytes())
    assert rb"\-\-why" in manual
    assert (installed / "etc/kilowatch").is_dir()


def test_the_examples_are_the_files_of_the_checkout(installed: Path) -> None:
    """Where docs/deploy.md says that they lie."""
    page = (ROOT / "docs/deploy.md").read_text()
    examples = re.search(r"`/(usr/share/doc/kilowatch/examples)/`", page)
    assert examples is not None
    named = {f"deploy/{name}": name for name in ("mosquitto", "prometheus", "node", "slurm", "kubernetes")}
    for source, name in (named | {each: each for each in ("grafana/dashboards", "grafana/provisioning")}).items():
        shipped = {path: (ROOT / source / path).read_bytes() for path in files(ROOT / source)}
        assert shipped
        folder = installed / examples[1] / name
        assert {path: (folder / path).read_bytes() for path in files(folder)} == shipped


def test_no_script_names_the_folder_of_the_build(installed: Path) -> None:
    programs = [path for path in (installed / "opt/kilowatch/bin").iterdir() if not path.is_symlink()]
    firsts = {path.read_text().splitlines()[0] for path in programs}
    assert firsts == {"#!/opt/kilowatch/bin/python"}
    assert "home = /usr/bin\n" in (installed / "opt/kilowatch/pyvenv.cfg").read_text()


def test_the_demo_runs_from_it(installed: Path, tmp_path: Path) -> None:
    """With an empty environment, and the package's own environment alone."""
    program = installed / "opt/kilowatch/bin"
    ended = subprocess.run(
        [str(program / "python"), str(program / "kilowatch"), "demo", "--no-ui", "--faults", "none",
         "--for", "10s", "--json"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, cwd=tmp_path,
        check=True, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    outcome = json.loads(ended.stdout[ended.stdout.index("{") :])
    assert outcome["frames_stored"] > 0


def test_removal_leaves_nothing_but_settings_and_data(installed: Path) -> None:
    """Last in this file: purging takes the settings too, and never the data."""
    (installed / "etc/kilowatch/kilowatch.toml").write_text('cluster = "hall-1"\n')
    dpkg(installed, "-r", "kilowatch")
    assert files(installed) == {"etc/kilowatch/kilowatch.toml", "var/lib/kilowatch/ring"}
    dpkg(installed, "-P", "kilowatch")
    assert files(installed) == {"var/lib/kilowatch/ring"}


# -- A bare Debian: what debootstrap makes of the packages that every Debian has --------------------

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"}
"""All that a command has there: no language, no name of a terminal."""
DATA = "var/lib/kilowatch"
CACHES = ("dev", "proc", "run", "tmp", "var/cache", "var/lib/apt", "var/lib/dpkg", "var/log")
"""What dpkg and apt keep for themselves, and what is gone with the next start."""


def within(root: Path, *command: str, **more: str) -> list[str]:
    """The command line that runs a command in a root, with mounts and processes that end with it."""
    mounts = f"mount -t proc proc '{root}/proc' && mount -t devpts devpts '{root}/dev/pts'"
    environment = [f"{name}={value}" for name, value in (ENVIRONMENT | more).items()]
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child",
            "sh", "-c", f"{mounts} && exec chroot '{root}' \"$@\"", "sh",
            "/usr/bin/env", "-i", *environment, *command]  # fmt: skip


def there(root: Path, *command: str) -> str:
    """Run a command in a root; return what it wrote."""
    ended = subprocess.run(
        within(root, *command), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def tree(root: Path) -> dict[str, str]:
    """Every path of a root, with the content of files, but for caches and logs."""
    found = {}
    for folder, folders, names in os.walk(root):
        place = os.path.relpath(folder, root)
        folders[:] = [name for name in folders if os.path.normpath(f"{place}/{name}") not in CACHES]
        for name in (*folders, *names):
            path = Path(folder, name)
            content = str(path.readlink()) if path.is_symlink() else ""
            if path.is_file() and not path.is_symlink():
                content = hashlib.sha256(path.read_bytes()).hexdigest()
            found[os.path.normpath(f"{place}/{name}")] = f"{path.lstat().st_mode:o} {content}"
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with two times the same bare Debian, of this machine's release and from its own mirror, as `with` and
    `never`."""
    folder = tmp_path_factory.mktemp("bare")
    debootstrap(folder / "with")
    there(folder / "with", "apt-get", "update", "-q")
    subprocess.run(["cp", "-a", str(folder / "with"), str(folder / "never")], check=True)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def machine(bare: Path, package: Path) -> Path:
    """A bare Debian on which the command of docs/deploy.md has installed the package."""
    root = bare / "with"
    (root / "tmp/dist").mkdir()
    shutil.copy(package, root / "tmp/dist")
    command = re.search(r"^    (apt-get install \./dist/.*)$", (ROOT / "docs/deploy.md").read_text(), re.MULTILINE)
    assert command is not None
    there(root, "sh", "-c", f"cd /tmp && {command[1]} --yes")
    return root


@BARE
def test_on_a_bare_debian_the_demo_runs(machine: Path) -> None:
    wrote = there(machine, "kilowatch", "demo", "--no-ui", "--faults", "none", "--for", "10s", "--json")
    outcome = json.loads(wrote[wrote.index("{") :])
    assert outcome["frames_stored"] > 0
    assert outcome["frames_lost"] == 0


@BARE
async def test_on_a_bare_debian_the_dashboard_runs(machine: Path) -> None:
    """On a terminal, without a locale."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    os.set_blocking(ours, False)
    process = await asyncio.create_subprocess_exec(
        *within(machine, "kilowatch", "demo", TERM="xterm-256color"), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    try:
        await follow(ours, b"", b"LIVE")
        await follow(ours, b"q", b"\x1b[?1049l")
        async with waiting.within():
            assert await process.wait() == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        os.close(ours)


@BARE
def test_on_a_bare_debian_apt_removes_all_but_data(machine: Path, bare: Path) -> None:
    """Last in this file. What is left is compared with a machine that has never seen kilowatch, but has the packages
    that apt installed for it."""
    there(machine, "kilowatch", "run", "--no-ui", "--for", "5s")
    (machine / "etc/kilowatch/kilowatch.toml").write_text('cluster = "hall-1"\n')
    data = {path: content for path, content in tree(machine).items() if path.startswith(DATA)}
    assert any(path.endswith(".duckdb") for path in data), sorted(data)

    planned = there(machine, "apt-get", "remove", "-y", "--simulate", "kilowatch")
    assert re.findall(r"^Remv (\S+)", planned, re.MULTILINE) == ["kilowatch"]
    shutil.copytree(machine / "tmp/dist", bare / "never/tmp/dist")
    needed = there(bare / "never", "sh", "-c", "apt-get install --simulate /tmp/dist/*.deb")
    others = [name for name in re.findall(r"^Inst (\S+)", needed, re.MULTILINE) if name != "kilowatch"]
    assert others
    there(bare / "never", "apt-get", "install", "-y", "--no-install-recommends", *others)
    never = tree(bare / "never")

    there(machine, "apt-get", "remove", "-y", "kilowatch")
    settings = {"etc/kilowatch", "etc/kilowatch/kilowatch.toml"}
    left = tree(machine)
    assert {path for path in left if path not in never} == settings | data.keys()
    there(machine, "apt-get", "purge", "-y", "kilowatch")
    left = tree(machine)
    assert {path: content for path, content in left.items() if never.get(path) != content} == data
    assert never.keys() - left.keys() <= {"opt"}  # dpkg deletes it when it is empty: no package owns it
