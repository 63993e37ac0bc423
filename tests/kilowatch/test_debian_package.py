"""The Debian package: built, installed into an empty root, run from there, and removed."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASE = Path("/usr/bin/python3")

pytestmark = [
    pytest.mark.systems,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        shutil.which("dpkg-deb") is None or not BASE.exists(),
        reason="not a Debian machine with its python3",
    ),
]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package; $KILOWATCH_DEB names one that is built already."""
    if built := os.environ.get("KILOWATCH_DEB"):
        return Path(built)
    folder = tmp_path_factory.mktemp("deb")
    subprocess.run(["sh", "deploy/debian/build.sh", str(folder)], cwd=ROOT, check=True)
    (found,) = folder.glob("kilowatch_*.deb")
    return found


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
    return {name for path in found if not (name := str(path.relative_to(root))).startswith("var/lib/dpkg/")}  # fmt: skip


def test_it_says_what_it_needs(package: Path) -> None:
    fields = subprocess.run(
        ["dpkg-deb", "-f", str(package)], check=True, capture_output=True, text=True
    ).stdout
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
    manual = gzip.decompress((installed / "usr/share/man/man1/kilowatch-nodes-retire.1.gz").read_bytes())  # fmt: skip
    assert rb"\-\-why" in manual
    assert (installed / "etc/kilowatch").is_dir()


def test_the_examples_are_the_files_of_the_checkout(installed: Path) -> None:
    """Where docs/deploy.md says that they lie."""
    page = (ROOT / "docs/deploy.md").read_text()
    examples = re.search(r"`/(usr/share/doc/kilowatch/examples)/`", page)
    assert examples is not None
    named = {
        f"deploy/{name}": name
        for name in ("mosquitto", "prometheus", "node", "slurm", "kubernetes")
    }
    for source, name in (
        named | {each: each for each in ("grafana/dashboards", "grafana/provisioning")}
    ).items():
        shipped = {path: (ROOT / source / path).read_bytes() for path in files(ROOT / source)}
        assert shipped
        folder = installed / examples[1] / name
        assert {path: (folder / path).read_bytes() for path in files(folder)} == shipped


def test_no_script_names_the_folder_of_the_build(installed: Path) -> None:
    programs = [path for path in (installed / "opt/kilowatch/bin").iterdir() if not path.is_symlink()]  # fmt: skip
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
