"""Ports, and GPUs of AMD, in InfluxDB by the same rows as others: names, tags, and what boards ask for."""

from __future__ import annotations

import re

from aggregator.influx.names import changes, device_tags, measurement
from aggregator.store.protocol import StoredDevice
from grafana.influx import DASHBOARDS
from telemetry.catalogue import CATALOGUE
from telemetry.metric import Table


def test_a_port_is_a_measurement_with_its_node_identity_and_name() -> None:
    its = StoredDevice(3, "dgx-1", "port:dgx-1:0000:19:00.0/1", 1, "mlx5_0/1")
    assert device_tags("lab", Table.PORT, its, None) == (
        ",cluster=lab,id=port:dgx-1:0000:19:00.0/1,node=dgx-1,port=mlx5_0/1"
    )
    assert (measurement(Table.PORT), changes(Table.PORT)) == ("port", "port_changes")


def test_a_gpu_of_amd_is_a_series_beside_those_of_nvidia_with_its_model() -> None:
    its = StoredDevice(3, "both", "GPU-amd-1", 4, "AMD Instinct MI300X")
    theirs = StoredDevice(4, "both", "GPU-nv-1", 0, "NVIDIA H100 80GB HBM3")
    assert device_tags("lab", Table.GPU, its, None) == (
        ",cluster=lab,gpu=4,model=AMD\\ Instinct\\ MI300X,node=both,uuid=GPU-amd-1"
    )
    assert "model=NVIDIA\\ H100" in device_tags("lab", Table.GPU, theirs, None)


def test_what_the_board_asks_of_ports_are_rows_of_the_catalogue() -> None:
    rows = {metric.name for metric in CATALOGUE if metric.table is Table.PORT}
    text = "\n".join(
        query.expr for board in DASHBOARDS for part in board.parts for query in getattr(part, "queries", ())
    )
    asked = set(re.findall(r'"(port_\w+)"', text)) - {"port_changes"}
    assert asked >= {"port_state", "port_receive_bytes_total"}
    assert asked <= rows
