"""docs/lab.md on real processes: what its commands print ends in a cluster of two nodes that answers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.brokers import wait_for_port
from tests.endtoend.test_deploy_page import ROOT, SECONDS, Hall, hall, pytestmark
from tests.kit.waiting import wait_until

__all__ = ["hall", "pytestmark"]
PAGE = (ROOT / "docs" / "lab.md").read_text()
COMMANDS = re.findall(r"^    (kilowatch .*)$", PAGE, re.MULTILINE)


def on_the_server(hall: Hall, command: str) -> subprocess.CompletedProcess[str]:
    """Type a command where the server's settings are found without being named."""
    folder: Path = hall.folder / "aggregator/etc/kilowatch"
    return subprocess.run(
        hall.here(command, "aggregator"), cwd=folder, env=hall.environment("aggregator"),
        check=False, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip


def test_a_newcomer_in_a_lab_gets_a_cluster_by_the_page(hall: Hall) -> None:
    """Broker and aggregator are one machine; `run`, the first command, is tested as home's."""
    run, init, doctor, status = COMMANDS
    assert run == "kilowatch run"
    hall.type(init.replace("server.example", "broker.example"))
    hall.unpack("aggregator.tar", "aggregator")
    (hall.folder / "broker").symlink_to("aggregator")
    hall.unpack("broker.tar", "broker")
    hall.start("broker", "systemctl restart mosquitto")
    wait_for_port(hall.broker, SECONDS)
    hall.aggregate()
    for name, simulated in (("node1", "node-00001"), ("node2", "node-00002")):
        hall.unpack(f"nodes/{name}.tar", name)
        hall.collect(name, simulated)
    wait_until(lambda: hall.online() == {"node1", "node2"}, "both nodes", seconds=SECONDS)
    found = on_the_server(hall, doctor)
    assert re.search(r"^. verdict +aggregator: works", found.stdout.splitlines()[-1]), found.stdout
    assert "lets nobody publish as another node" in found.stdout
    assert found.stderr == "", "a stranger who is refused is no error"
    shown = on_the_server(hall, f"{status} 127.0.0.1:{hall.http}")
    assert "2/2 nodes" in shown.stdout, shown.stdout
