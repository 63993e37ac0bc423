"""What the measurements stand on: packets, prepared frames, counting, quantiles, the page."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import duckdb
import pytest

from bench import ingest, page, wire
from bench.__main__ import LONG, SHORT
from bench.audit import audit
from bench.load import BASES, TICKS, make_load
from bench.processes import CpuMeter
from bench.testbed import Lags, ScrapedPage
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, SCHEMA, SCHEMA_ID


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2_097_152])
def test_a_packet_is_read_as_it_was_written(size: int) -> None:
    """Whole, and in two pieces cut anywhere near its head."""
    packet = wire.publish("a/b", bytes(size)) + wire.PINGREQ + wire.publish("c", b"x")
    for cut in (1, 2, 3, len(packet) - 1):
        buffer = bytearray(packet[:cut])
        found = list(wire.messages(buffer))
        buffer += packet[cut:]
        found += list(wire.messages(buffer))
        assert found == [("a/b", bytes(size)), ("c", b"x")]
        assert not buffer


def test_a_prepared_frame_is_a_frame() -> None:
    """Its head is patched in by hand; any reader must take it for the collector's own."""
    load = make_load(40, 2)
    for node, seq in ((0, 0), (5, 3), (39, 100_000)):
        encoded = load.frame(node, seq, 1_767_225_600_000_000_000)
        frame = frames.decode(encoded)
        frames.check(frame, SCHEMA)
        assert (frame.schema, frame.session, frame.seq) == (SCHEMA_ID, load.session(node), seq)
        assert frame.sampled_at == 1_767_225_600_000_000_000
        assert [packed.block for packed in frame.blocks] == [GPU_FAST]
        packet = bytearray(load.publish_head(node) + encoded)
        assert [payload for _, payload in wire.messages(packet)] == [encoded]


def test_a_load_changes_as_recordings_do() -> None:
    """Not all values from tick to tick, and not none."""
    load = make_load(BASES, 8)
    changed = total = 0
    for node in range(BASES):
        for seq in range(TICKS - 1):
            one, two = (frames.unpack(frames.decode(load.frame(node, at, 1)).blocks[0]) for at in (seq, seq + 1))
            pairs = [pair for row, other in zip(one, two, strict=True) for pair in zip(row, other, strict=True)]
            changed += sum(before != after for before, after in pairs if not math.isnan(before))
            total += len(pairs)
    assert 0.1 < changed / total < 0.7


def test_metrics_are_rounded_up_to_whole_blocks() -> None:
    """What is reported is what is sent."""
    fast, slow = (len(SCHEMA.blocks[block].names) for block in (GPU_FAST, GPU_SLOW))
    assert make_load(1, 1, 1).metrics == fast
    assert make_load(1, 1, fast + 1).metrics == fast + slow
    with pytest.raises(ValueError, match="at most"):
        make_load(1, 1, fast + slow + 1)


def test_every_node_has_an_inventory_of_its_own() -> None:
    """Or the fleet would be one node."""
    load = make_load(3 * BASES, 2)
    found = [messages.decode(load.inventory(node), Inventory) for node in range(load.nodes)]
    assert len({each.node for each in found}) == load.nodes
    assert len({gpu.uuid for each in found for gpu in each.gpus}) == 2 * load.nodes


@pytest.mark.parametrize("at_a_time", [1, 2, 1000])
def test_the_audit_sees_what_is_twice_and_what_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    """An audit that finds nothing must be able to find something, in however many parts."""
    monkeypatch.setattr("bench.audit.AUDIT_ROWS", at_a_time)
    file = tmp_path / "hot.duckdb"
    with duckdb.connect(str(file)) as store:
        store.execute("create table frames_0(run integer, seq bigint)")
        store.execute("insert into frames_0 values (1, 0), (1, 1), (1, 1), (2, 1)")
        store.execute("create table gpu_fast_0(device integer, run integer, seq bigint)")
        store.execute("insert into gpu_fast_0 values (1, 1, 0), (1, 1, 0), (2, 1, 0)")
        store.execute("create table holes(first bigint, last bigint)")
        store.execute("insert into holes values (5, 9)")
        store.execute("create table marks(first bigint, last bigint)")
        store.execute("insert into marks values (0, 6)")
        sealed = tmp_path / "sealed" / "gpu_fast"
        sealed.mkdir(parents=True)
        store.execute(
            "copy (select * from (values ('GPU-a', 1, 0), ('GPU-a', 1, 0), ('GPU-b', 1, 0)) "
            f"t(device, session, seq)) to '{sealed / 'hour.parquet'}' (format parquet)"
        )
    assert audit(tmp_path) == {"frames": 11, "distinct": 10, "rows": 6, "distinct_rows": 4, "holes": 5}


def test_quantiles_come_from_the_difference_of_two_pages() -> None:
    """Ten before, a hundred since."""
    before = Lags({0.1: 10.0, 0.2: 10.0, float("inf"): 10.0})
    after = Lags({0.1: 60.0, 0.2: 110.0, float("inf"): 110.0})
    since = after.since(before)
    assert since.quantile(0.5) == pytest.approx(0.1)
    assert since.quantile(0.75) == pytest.approx(0.15)
    assert Lags({}).quantile(0.5) is None
    assert Lags({0.1: 0.0, float("inf"): 4.0}).quantile(0.99) == float("inf")


def test_a_page_is_read_by_name_and_label() -> None:
    """As the aggregator writes it."""
    read = ScrapedPage('# HELP a b\na{x="1"} 2\na{x="2"} 3\nkilowatch_aggregator_holes_open 7\n')
    assert (read.sum("a"), read.sum("a", '"2"'), read.own("holes_open")) == (5, 3, 7)


def test_the_meter_counts_what_a_process_burns() -> None:
    """Our own, which burns until it has."""
    meter = CpuMeter(me=os.getpid())
    meter.start()
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    cost = meter.stop()["me"]
    assert 0.1 < cost.cpu_seconds < 5
    assert cost.cpu_percent > 0
    assert 0 < cost.pss_mib <= cost.rss_mib <= cost.peak_rss_mib + 1


def test_the_table_names_figures_ratios_and_commands() -> None:
    """A ratio above 1 says that the other takes more; what is not here is said to be so."""
    figures = {
        "insert": {"ns_per_value": 50.0},
        "influxdb": {"insert_ns_per_value": 1000.0},
        "victoria_metrics": "not here",
    }
    found = page.rows({"store": "bench.store"}, {"store": figures})
    inserts = [row for row in found if "insert a value" in row.what]
    assert [(row.ours, row.against, row.ratio) for row in inserts] == [
        ("50 ns", "influxdb 1,000", "20"),
        ("50 ns", "victoria_metrics: not here", ""),
    ]
    assert "`python -m bench.store`" in page.table(found)


def test_every_line_of_the_page_is_measured_and_the_page_has_its_marks() -> None:
    """In both forms."""
    assert {line.bench for line in page.LINES} == set(SHORT) == set(LONG)
    text = page.FILE.read_text()
    assert text.count(page.BEGIN) == text.count(page.END) == 1


def test_a_run_whose_store_would_not_fit_is_told_before_it_begins(tmp_path: Path) -> None:
    """A full disk after nine minutes of ten would spoil them all."""
    assert ingest.lacks_room(1000, tmp_path) == ""
    assert "set TMPDIR" in ingest.lacks_room(10**18, tmp_path)
    with pytest.raises(SystemExit, match="2"):
        ingest.main(["--gpus", "100000000", "--seconds", "100000"])
