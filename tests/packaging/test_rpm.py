"""The RPM: the same files as the Debian package, unpacked by rpm and run from there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from telemetry.runtime.release import release
from tests.packaging.built import debian_package

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.systems,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        (shutil.which("rpm") is None or shutil.which("dpkg-deb") is None) and not os.environ.get("CI"),
        reason="apt-get install rpm, on a Debian machine",
    ),
]


def output(*command: str) -> list[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The Debian package, and the RPM that was made of it."""
    folder = tmp_path_factory.mktemp("rpm")
    deb = debian_package(tmp_path_factory)
    subprocess.run(["sh", "deploy/rpm/build.sh", str(deb), str(folder)], cwd=ROOT, check=True)
    (rpm,) = folder.glob("*.rpm")
    return deb, rpm


def test_it_has_the_files_of_the_debian_package_and_names_its_python(packages: tuple[Path, Path]) -> None:
    deb, rpm = packages
    theirs = {
        line.split(maxsplit=5)[5].removeprefix(".").partition(" -> ")[0].rstrip("/")
        for line in output("dpkg-deb", "-c", str(deb))
    }
    ours = set(output("rpm", "-qpl", str(rpm)))
    assert ours <= theirs
    shared = theirs - ours  # folders of every system
    assert shared <= {"", "/etc", "/opt", "/usr", "/usr/bin", "/usr/lib", "/usr/lib/systemd",
                      "/usr/lib/systemd/system", "/usr/share", "/usr/share/bash-completion",
                      "/usr/share/bash-completion/completions", "/usr/share/doc", "/usr/share/man",
                      "/usr/share/man/man1"}  # fmt: skip
    version = output("dpkg-deb", "-f", str(deb), "Version")
    assert output("rpm", "-qp", "--queryformat", "%{VERSION}", str(rpm)) == version
    python = output("dpkg-deb", "-f", str(deb), "Depends")[0].split(",")[0]
    assert f"/usr/bin/{python}" in output("rpm", "-qp", "--requires", str(rpm))
    owners = set(output("rpm", "-qp", "--queryformat", "[%{FILEUSERNAME}:%{FILEGROUPNAME}\n]", str(rpm)))
    assert owners == {"root:root"}


def test_rpm_unpacks_it_and_it_runs(packages: tuple[Path, Path], tmp_path: Path) -> None:
    """Its scripts need a shell in the root: they are checked by the shell's own parser."""
    rpm = str(packages[1])
    subprocess.run(
        ["rpm", "--root", str(tmp_path / "root"), "--nodeps", "--noscripts", "-i", rpm], check=True, capture_output=True
    )
    program = tmp_path / "root/opt/kilowatch/bin"
    wrote = subprocess.run(
        [str(program / "python"), str(program / "kilowatch"), "--version"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert wrote.strip() == f"kilowatch, version {release()}"
    for script in ("postinstall", "preremove", "postremove"):
        subprocess.run(["sh", "-n", str(ROOT / "deploy/rpm" / script)], check=True)
    scripts = "\n".join(output("rpm", "-qp", "--scripts", rpm))
    assert "try-restart kilowatch-collector.service" in scripts
    assert "disable --now kilowatch-collector.service" in scripts
    subprocess.run(["rpm", "--root", str(tmp_path / "root"), "--noscripts", "-e", "kilowatch"], check=True)
    assert not (tmp_path / "root/opt/kilowatch/bin").exists()
