"""Fixtures of the aggregator's tests."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.influxes import Influxd, VictoriaMetrics


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MB, so that a disk can be full without filling one."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here: it takes root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


@pytest.fixture(scope="session")
def influxd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Influxd]:
    """A running influxd 1.x; each test makes a database of its own."""
    server = Influxd(tmp_path_factory.mktemp("influxd"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def victoria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VictoriaMetrics]:
    """A running victoria-metrics; each test has names of its own."""
    server = VictoriaMetrics(tmp_path_factory.mktemp("victoria"))
    server.start()
    yield server
    server.kill()
