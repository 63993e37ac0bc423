"""The image: built by buildah on a bare Debian, and run from there; compose's file against the program."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kilowatch import settings
from tests.bare_debian import BARE, debootstrap
from tests.brokers import free_port, wait_for_port

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/container"
USER = "64000:64000"


class Buildah:
    """buildah with a store of its own; steps run in a chroot, as there is no container engine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, *arguments: str) -> str:
        return subprocess.run(
            ["buildah", "--root", f"{self._folder}/store", "--runroot", f"{self._folder}/run",
             "--storage-driver", "vfs", *arguments],
            check=True, capture_output=True, text=True, timeout=900,
        ).stdout.strip()  # fmt: skip


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Buildah, str]]:
    """Buildah, and a container of the image; as base a bare Debian with its python3."""
    folder = tmp_path_factory.mktemp("image")
    buildah = Buildah(folder)
    debootstrap(folder / "base", "python3", "python3-venv")
    base = buildah("from", "scratch")
    buildah("add", "-q", base, str(folder / "base"), "/")
    shutil.rmtree(folder / "base")
    buildah("commit", "-q", "--rm", base, "bare")
    subprocess.run(["sh", "deploy/container/build.sh", str(folder / "context")], cwd=ROOT, check=True)
    buildah(
        "bud",
        "-q",
        "--isolation",
        "chroot",
        "--build-arg",
        "BASE=localhost/bare",
        "-t",
        "kilowatch",
        str(folder / "context"),
    )
    yield buildah, buildah("from", "localhost/kilowatch")
    shutil.rmtree(folder)


@BARE
@pytest.mark.systems
@pytest.mark.timeout(1200)
def test_the_image_runs_as_nobody_in_particular(image: tuple[Buildah, str]) -> None:
    buildah, container = image
    config = json.loads(buildah("inspect", "--type", "image", "localhost/kilowatch"))["OCIv1"]["config"]
    assert config["User"] == USER
    assert config["Entrypoint"] == ["kilowatch"]
    assert list(config["Volumes"]) == ["/var/lib/kilowatch"]
    run = ["run", "--isolation", "chroot", container, "--"]
    outcome = buildah(*run, "kilowatch", "demo", "--no-ui", "--faults", "none", "--for", "10s", "--json")
    assert json.loads(outcome[outcome.index("{") :])["frames_stored"] > 0
    shown = buildah(*run, "kilowatch", "config", "show")
    assert 'state_dir = "/var/lib/kilowatch"' in shown
    assert 'data_dir = "/var/lib/kilowatch/data"' in shown
    # By the exit status: what a command that ends at once has printed, buildah may lose on a busy machine.
    ours = "".join(f" -not -path '{path}/*'" for path in ("/var/lib/kilowatch", "/proc", "/sys", "/dev"))
    buildah(*run, "sh", "-c", f'test -z "$(find / -xdev -writable -type f{ours} 2>/dev/null)"')
    buildah(*run, "sh", "-c", "! ls / | grep wheels")


COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())


def test_compose_locks_each_container_and_publishes_to_this_machine_alone() -> None:
    for name, service in COMPOSE["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), name
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in COMPOSE["volumes"] or (FOLDER / source).is_file(), volume


@pytest.mark.parametrize("name", ["collector", "aggregator"])
def test_composes_variables_are_settings(name: str, tmp_path: Path) -> None:
    """Loaded by the program: an unknown or impossible one is an error."""
    environment = {key: str(value) for key, value in COMPOSE["services"][name]["environment"].items()}
    ours = {key: value for key, value in environment.items() if key.startswith(settings.PREFIX)}
    (tmp_path / "kilowatch.toml").touch()
    loaded = settings.load(tmp_path / "kilowatch.toml", ours)
    assert loaded.broker.host == "broker"
    assert "broker" in COMPOSE["services"]
    if name == "collector":
        assert loaded.collector.kernel_log is None
    else:
        port = loaded.aggregator.listen.rpartition(":")[2]
        assert COMPOSE["services"][name]["ports"] == [f"127.0.0.1:9400:{port}"]
        assert f"127.0.0.1:{port}/healthz" in str(COMPOSE["services"][name]["healthcheck"]["test"])
        assert loaded.aggregator.anonymous_read is True


@pytest.mark.skipif(shutil.which("mosquitto") is None, reason="apt-get install mosquitto")
def test_composes_broker_starts_with_its_file(tmp_path: Path) -> None:
    port = free_port()
    text = (FOLDER / "mosquitto.conf").read_text()
    assert re.findall(r"^listener (\d+)", text, re.MULTILINE) == ["1883"]
    (tmp_path / "mosquitto.conf").write_text(
        text.replace("listener 1883", f"listener {port} 127.0.0.1")
        + ("user root\n" if os.geteuid() == 0 else "")  # in the container it is a number
    )
    broker = subprocess.Popen(
        ["mosquitto", "-c", str(tmp_path / "mosquitto.conf")],
        env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for_port(port)
    finally:
        broker.kill()
        broker.wait()
