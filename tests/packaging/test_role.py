"""The Ansible role, run on this machine: every host of a small cluster is a folder."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kilowatch import settings
from kilowatch.__main__ import main
from tests.packaging.built import wheel

ROOT = Path(__file__).parents[2]
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")

pytestmark = [
    pytest.mark.systems,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        (os.geteuid() != 0 or shutil.which("openssl") is None) and not os.environ.get("CI"),
        reason="needs root, since keys are root's, and openssl",
    ),
]


@pytest.fixture
def inventory(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster of `kilowatch init`, and its hosts. Each has what stands for its root."""
    folder = tmp_path / "kilowatch-cluster"
    made = CliRunner().invoke(
        main, ["init", "--folder", str(folder), "--cluster", "lab", "--broker", "broker.example", "dgx01", "dgx02"]
    )
    assert made.exit_code == 0, made.output
    hosts = {"broker": ["b1"], "aggregator": ["a1"], "collectors": ["dgx01", "dgx02"]}
    for host in itertools.chain(*hosts.values()):
        (tmp_path / host).mkdir()
    file = tmp_path / "inventory.yml"
    file.write_text(
        yaml.safe_dump(
            {
                "all": {
                    "vars": {
                        "ansible_connection": "local",
                        "ansible_python_interpreter": sys.executable,
                        "ansible_become": False,
                        "kilowatch_cluster": str(folder),
                        "kilowatch_start": False,
                        "kilowatch_pip": str(wheel(tmp_path_factory)),
                        "kilowatch_pip_arguments": "--no-deps --no-index",
                        "kilowatch_python": sys.executable,
                        "kilowatch_home": str(tmp_path / "{{ inventory_hostname }}/opt/kilowatch"),
                        "kilowatch_root": str(tmp_path / "{{ inventory_hostname }}"),
                    },
                    "children": {group: {"hosts": {name: {} for name in names}} for group, names in hosts.items()},
                }
            }
        )
    )
    return file


def play(inventory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PLAYBOOK), "-i", str(inventory), "deploy/ansible/site.yml", *arguments],
        # Not the input of the tests: a child of another test may have left that without blocking, and Ansible refuses.
        stdin=subprocess.DEVNULL, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0",
             "ANSIBLE_HOME": str(inventory.parent / "ansible")},
    )  # fmt: skip


def test_a_cluster_is_installed_and_a_second_run_changes_nothing(inventory: Path, tmp_path: Path) -> None:
    first = play(inventory)
    assert first.returncode == 0, first.stdout + first.stderr
    for host, role in (("dgx01", "collector"), ("dgx02", "collector"), ("a1", "aggregator")):
        place = tmp_path / host / "etc/kilowatch"
        loaded = settings.load(place / "kilowatch.toml", {})
        assert (loaded.cluster, loaded.broker.host) == ("lab", "broker.example")
        assert (tmp_path / host / "opt/kilowatch/bin/kilowatch").is_file()
        assert (tmp_path / host / f"etc/systemd/system/kilowatch-{role}.service").is_file()
        key = place / ("node.key" if role == "collector" else "aggregator.key")
        assert key.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "b1/etc/mosquitto/kilowatch/access.acl").is_file()
    again = play(inventory)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "changed=0" in again.stdout
    assert not [line for line in again.stdout.splitlines() if line.startswith("changed:")], again.stdout


def test_a_host_that_init_does_not_know_is_refused_with_the_command(inventory: Path) -> None:
    text = inventory.read_text().replace("dgx02: {}", "dgx99: {}")
    inventory.write_text(text)
    (inventory.parent / "dgx99").mkdir()
    ended = play(inventory, "--limit", "dgx99")
    assert ended.returncode != 0
    assert "--node dgx99" in ended.stdout
