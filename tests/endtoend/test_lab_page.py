"""docs/lab.md as it is written, and INSTALL.md after it: a cluster of two nodes on the screen, whatever is pulled out."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.endtoend.pages import Network, by_night, commands, leave, needed, page

pytestmark = [
    needed,
    pytest.mark.nightly,
    pytest.mark.skipif(
        any(shutil.which(name) is None for name in ("mosquitto", "openssl")) and not os.environ.get("CI"),
        reason="apt-get install mosquitto openssl",
    ),
]


def clock(screen: str) -> str:
    """The time that a header has, of the newest data; "" while it has none."""
    found = re.search(r"\d\d:\d\d:\d\dZ", screen)
    return found[0] if found else ""


def test_a_newcomer_in_a_lab_gets_a_cluster_by_the_page(tmp_path: Path) -> None:
    run, init, doctor, status = commands(page("docs/lab.md"), "kilowatch")
    with Network(tmp_path) as network, by_night():
        server = network.machine("server")
        nodes = [
            network.machine(f"node{number}", KILOWATCH__COLLECTOR__SOURCE=f"simulated:fleet/node-0000{number}")
            for number in (1, 2)
        ]
        network.call("server.example", server)
        look = nodes[0].open(run)
        look.wait("LIVE", "1/1 nodes reporting", "GPUs 8/8 reporting")
        leave(look)

        server.type(init)
        install = server.type("cat kilowatch-cluster/INSTALL.md")
        to_broker, to_aggregator, reload, to_node, start = commands(install)
        archives = {server: ["broker.tar", "aggregator.tar"], **{each: [f"nodes/{each.name}.tar"] for each in nodes}}
        for machine, files in archives.items():
            machine.receive(server, *(f"kilowatch-cluster/{each}" for each in ["INSTALL.md", *files]))
        for command in (to_broker, to_aggregator, reload):
            server.type(command)
        for each in nodes:
            each.type(to_node.replace("NAME", each.name))
            each.type(start)
        top = server.open("kilowatch top")
        top.wait("LIVE lab", "2/2 nodes reporting", "GPUs 16/16 reporting")
        said = server.type(doctor, codes=(0, 1))
        assert re.search(r"^. verdict +aggregator: works", said.splitlines()[-1]), said
        assert "lets nobody publish as another node" in said
        assert "kilowatch listens on 127.0.0.1:9400" in said, "which is no warning"
        assert "Traceback" not in said

        nodes[1].unplug()
        top.wait("1/2 nodes reporting", "GPUs 8/16 reporting", "8 no data")
        nodes[1].plug_in()
        top.wait("LIVE lab", "2/2 nodes reporting", "GPUs 16/16 reporting")
        server.type("systemctl restart kilowatch-aggregator")
        before = clock(top.screen)
        top.wait(
            "LIVE lab", "2/2 nodes reporting", "GPUs 16/16 reporting", holds=lambda screen: clock(screen) != before
        )
        nodes[0].cut_power()
        nodes[0].boot()
        network.connect(nodes[0])
        top.wait("1/2 nodes reporting")
        nodes[0].type(start)
        top.wait("LIVE lab", "2/2 nodes reporting", "GPUs 16/16 reporting")
        leave(top)
        server.type_until(status, "2/2 nodes reporting")
        server.browse_until("http://127.0.0.1:9400/", "reported by 16 of 16 GPUs")
        assert "Traceback" not in server.type("cat /var/log/kilowatch-aggregator.log")
