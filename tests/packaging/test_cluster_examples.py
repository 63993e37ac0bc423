"""The examples for several aggregators: systemd and Kubernetes find nothing wrong, and the settings load."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from aggregator.cluster import member
from aggregator.service import LAST_COMMIT_SECONDS, LAST_SECONDS
from kilowatch import settings

ROOT = Path(__file__).parents[2]
CLUSTER, UNITS = ROOT / "deploy/cluster", ROOT / "deploy/systemd"
LEAVING = member.LEAVE_SECONDS + LAST_COMMIT_SECONDS + 2 * LAST_SECONDS


def objects() -> dict[str, Any]:
    text = (CLUSTER / "kubernetes.yaml").read_text()
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


@pytest.mark.parametrize("version", ["1.25", "1.37.0"])
def test_every_object_is_one_of_kubernetes(version: str) -> None:
    found = objects()
    assert {"StatefulSet", "Service", "ConfigMap", "PodDisruptionBudget"} == found.keys()
    for each in found.values():
        kubernetes_validate.validate(each, version, strict=True)
    pod = found["StatefulSet"]["spec"]["template"]
    assert found["Service"]["spec"]["selector"] == pod["metadata"]["labels"]
    assert pod["spec"]["terminationGracePeriodSeconds"] > LEAVING, "it is killed as it hands over"


def test_the_settings_make_a_member(tmp_path: Path) -> None:
    file, token = tmp_path / "aggregator.toml", tmp_path / "token"
    token.write_text("t" * 40)
    text = objects()["ConfigMap"]["data"]["aggregator.toml"]
    file.write_text(text.replace("/etc/kilowatch/secret/token", str(token)))
    found = settings.load(file, {}).aggregator
    assert len(found.members.nats) == len(found.broker.hosts) == 3
    assert found.members.site
    found.check()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", ["kilowatch-aggregator.service", "kilowatch-nats.service"])
def test_systemd_finds_nothing_wrong(tmp_path: Path, unit: str) -> None:
    shutil.copytree(CLUSTER, tmp_path, dirs_exist_ok=True)
    shutil.copy(UNITS / "kilowatch-aggregator.service", tmp_path)
    for path in tmp_path.glob("*.service"):
        text = path.read_text().replace("/opt/kilowatch/bin/kilowatch", sys.executable)
        path.write_text(text.replace("/usr/bin/nats-server", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit)],
        check=False, capture_output=True, text=True, env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_systemd_waits_until_the_nodes_are_handed_over() -> None:
    text = (CLUSTER / "kilowatch-aggregator.service.d/cluster.conf").read_text()
    [line] = [line for line in text.splitlines() if line.startswith("TimeoutStopSec=")]
    assert int(line.partition("=")[2]) > LEAVING
