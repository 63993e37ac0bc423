"""OTLP: what is sent is read with the official classes, over both of its protocols; what is not taken is counted."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.semconv._incubating.metrics import hw_metrics

from aggregator.config import AggregatorConfig
from aggregator.remote.otlp.exporter import Exporter
from aggregator.remote.otlp.gather import MOST_BYTES, OtlpGatherer
from aggregator.remote.otlp.names import CONVENTIONS, PREFIX, UP, OtlpShape, exported
from aggregator.remote.otlp.wire import attributes, refused, requests
from aggregator.remote.recipient import Recipient
from aggregator.settings.otlp import OtlpConfig, OtlpProtocol
from telemetry.catalogue import BY_NAME
from telemetry.devices import Event, MigInstance, Port
from telemetry.errors import ConfigError
from telemetry.metric import Kind, Table
from telemetry.wire.schema import SCHEMA
from tests.aggregator.fake_view import FakeView, inventory
from tests.aggregator.http_client import small_cluster
from tests.aggregator.otlp_receiver import Otlp, Point, by_grpc, by_http, points, records
from tests.conftest import ROOT
from tests.kit.waiting import until


class Meter:
    """Stand-in for the official package's meter: it records the last instrument."""

    def __init__(self) -> None:
        self.made: tuple[str, str, str] = ("", "", "")

    def __getattr__(self, name: str) -> Callable[..., None]:
        kind = {
            "create_counter": "counter",
            "create_up_down_counter": "up-down counter",
            "create_gauge": "gauge",
            "create_observable_gauge": "gauge",
        }[name]

        def make(*, name: str, unit: str, **_: Any) -> None:
            self.made = name, unit, kind

        return make


def test_names_units_and_shapes_are_those_of_the_conventions() -> None:
    known, meter = {}, Meter()
    for name, make in vars(hw_metrics).items():
        if name.startswith("create_hw_"):
            make(*[meter, None][: make.__code__.co_argcount])
            known[meter.made[0]] = meter.made
    assert known
    for row in CONVENTIONS:
        assert (row.name, row.unit, row.shape.value) == known.get(row.name), row
        metric = BY_NAME[row.metric]
        assert (metric.kind is Kind.COUNTER) == (row.shape is OtlpShape.COUNTER), row


def test_the_page_has_all_that_is_sent() -> None:
    page = (ROOT / "docs/otlp.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| `hw.")]
    assert len(lines) == len(CONVENTIONS)
    for row, line in zip(CONVENTIONS, lines, strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells == [
            f"`{row.name}`", ", ".join(f"`{key}` {value}" for key, value in row.attributes), row.unit,
            row.shape.value, f"`{row.metric}`",
        ]  # fmt: skip


def sent(gatherer: OtlpGatherer) -> list[Point]:
    """Return what a push has of a view's readings."""
    readings = asyncio.run(gatherer.readings())
    found = gatherer.metrics(readings)
    assert sum(count for _, count in found) == sum(len(points(body)) for body, _ in found)
    return [point for body, _ in found for point in points(body)]


def test_every_reading_is_sent_once_and_none_that_is_absent() -> None:
    """Held against the fleet, reading by reading."""
    view = asyncio.run(small_cluster())
    rows = exported(["gpu_*", "link_*", "node_*"])
    found = sent(OtlpGatherer(view, rows))
    there = {(point.node, point.name, tuple(sorted(point.attributes.items()))): point.value for point in found}
    assert len(there) == len(found), "each once"
    expected = len(view.fleet.nodes)
    for row in rows:
        column = view.fleet.column(row.metric, view.now())
        expected += int(np.count_nonzero(~np.isnan(column)))
    assert len(found) == expected > 100
    watts = {(point.node, point.attributes["hw.id"]): point.value for point in found if point.name == "hw.power"}
    assert watts == {(node, f"GPU-{node}-{gpu}"): 300.25 + gpu for node in ("n1", "n2") for gpu in (0, 1)}
    [first] = [point for point in found if point.name == "hw.power" and point.attributes["hw.id"] == "GPU-n1-0"]
    assert first.attributes == {
        "hw.id": "GPU-n1-0", "hw.type": "gpu", "hw.name": "GPU 0", "hw.model": "NVIDIA H100 80GB HBM3",
        "hw.serial_number": "160000", "hw.firmware_version": "96.00.61.00.01",
        **({"hw.driver_version": driver} if (driver := view.fleet.nodes["n1"].inventory.driver_version) else {}),
    }  # fmt: skip
    assert first.at == view.fleet.nodes["n1"].sampled_at


def test_a_reading_is_as_short_as_on_every_other_face_and_bytes_are_whole() -> None:
    view = asyncio.run(small_cluster())
    rows = view.fleet.nodes["n1"].rows[Table.GPU]
    for name, value in (("gpu_power_watts", 67.03), ("gpu_memory_used_bytes", 85_899_345_920.0)):
        matrix = next(m for m in view.fleet.matrices if name in m.columns)
        matrix.gauges[rows, matrix.columns[name]] = value
    found = [point for point in sent(OtlpGatherer(view, CONVENTIONS)) if point.node == "n1"]
    assert {point.value for point in found if point.name == "hw.power"} == {67.03}
    usage = [p for p in found if p.name == "hw.gpu.memory.usage" and "hw.parent" not in p.attributes]
    assert {point.value for point in usage} == {85_899_345_920}


def test_a_fleet_without_ports_and_one_without_gpus_are_sent() -> None:
    some = msgspec.structs.replace(inventory("n1"), links=(), ports=(), instances=())
    for gpus in (some.gpus, ()):
        view = FakeView()
        view.add(msgspec.structs.replace(some, gpus=gpus))
        view.fleet.nodes["n1"].seen = view.now()
        for matrix in view.fleet.matrices:
            matrix.gauges[:], matrix.seen[:] = 1.0, view.now()
        names = {point.name for point in sent(OtlpGatherer(view, CONVENTIONS))}
        assert names >= {UP.name, "hw.host.power"}
        assert ("hw.power" in names) == bool(gpus)
    assert sent(OtlpGatherer(FakeView(), CONVENTIONS)) == []


def test_an_event_that_can_not_be_written_costs_no_other() -> None:
    view = asyncio.run(small_cluster())
    bad = msgspec.structs.replace(event(2), data={"xid": 79, "line": "\ud800"})
    [(body, count)] = OtlpGatherer(view, CONVENTIONS).records([event(1), bad, event(3)], 5)
    assert [one.attributes["kilowatch.event.id"] for one in records(body)] == ["1-1", "1-3"]
    assert count == 2
    assert "node/n1/otlp events" in view.pages_aside


def test_of_a_node_that_is_silent_nothing_is_sent_but_that_it_is() -> None:
    view = asyncio.run(small_cluster())
    view.monotonic += 1
    view.fleet.nodes["n2"].online = False
    found = sent(OtlpGatherer(view, CONVENTIONS))
    assert [point.value for point in found if point.node == "n2"] == [0]
    up = {point.node: point.value for point in found if point.name == UP.name}
    assert up == {"n1": 1, "n2": 0}
    view.monotonic += 60
    view.fleet.nodes["n1"].seen = view.now()
    assert [point.name for point in sent(OtlpGatherer(view, CONVENTIONS)) if point.node == "n1"] == [UP.name], (
        "stale readings are none"
    )


def test_a_counter_that_falls_begins_anew() -> None:
    view = asyncio.run(small_cluster())
    gatherer = OtlpGatherer(view, CONVENTIONS)

    def energy(node: str) -> Point:
        return next(p for p in sent(gatherer) if p.name == "hw.energy" and p.node == node)

    first = energy("n1")
    assert first.start == first.at
    asyncio.run(view.tick(1))
    later = energy("n1")
    assert later.start == first.start < later.at
    matrix = next(m for m in view.fleet.matrices if "gpu_energy_joules_total" in m.columns)
    column = matrix.columns["gpu_energy_joules_total"] - len(matrix.block.gauges)
    matrix.counters[view.fleet.nodes["n1"].rows[Table.GPU], column] = 1.0
    reset = energy("n1")
    assert reset.start == reset.at == later.at, "the driver was loaded anew"
    assert energy("n2").start == first.start
    asyncio.run(view.tick(2))
    before = energy("n1")
    matrix.counters[view.fleet.nodes["n1"].rows[Table.GPU], column] = np.nan
    assert {p.attributes["hw.type"] for p in sent(gatherer) if p.name == "hw.energy" and p.node == "n1"} == {
        "cpu",
        "memory",
    }
    asyncio.run(view.tick(3))
    matrix.counters[view.fleet.nodes["n1"].rows[Table.GPU], column] = 2.0
    after_gap = energy("n1")
    assert after_gap.start == after_gap.at > before.at, "a fall is seen over a gap too"


def test_parts_of_gpus_and_ports_are_devices_too() -> None:
    view = FakeView()
    what = msgspec.structs.replace(
        inventory("n1", gpus=1, links=0),
        instances=(MigInstance(uuid="MIG-1", gpu="GPU-n1-0", gpu_instance=7, profile="1g.10gb"),),
        ports=(Port(id="port:n1:0000:0c:00.0/1", adapter="mlx5_0", number=1, model="MT4129"),),
    )
    view.add(what)
    names = {"instance_memory_used_bytes": 4096.0, "port_state": 4.0, "port_receive_bytes_total": 7.0,
             "port_receive_errors_total": 2.0, "node_cpu_package_energy_joules_total": 50.0}  # fmt: skip
    now = view.now()
    view.fleet.nodes["n1"].seen, view.fleet.nodes["n1"].sampled_at = now, view.wall()
    for matrix in view.fleet.matrices:
        for name in names.keys() & matrix.columns.keys():
            rows = view.fleet.nodes["n1"].rows[matrix.block.table]
            place = matrix.columns[name]
            if place < len(matrix.block.gauges):
                matrix.gauges[rows, place] = names[name]
            else:
                matrix.counters[rows, place - len(matrix.block.gauges)] = names[name]
            matrix.seen[rows] = now
    found = {
        (point.name, point.attributes["hw.id"]): point
        for point in sent(OtlpGatherer(view, CONVENTIONS))
        if point.name != UP.name
    }
    usage = found["hw.gpu.memory.usage", "MIG-1"]
    assert (usage.value, usage.attributes["hw.parent"]) == (4096, "GPU-n1-0")
    port = what.ports[0].id
    assert found["hw.network.up", port].value == 1
    assert found["hw.network.io", port].attributes["network.io.direction"] == "receive"
    assert found["hw.errors", port].attributes["error.type"] == "receive"
    assert found["hw.energy", "cpu"].attributes == {"hw.id": "cpu", "hw.type": "cpu", "hw.name": "cpu"}
    assert len(found) == len(names)


def test_what_a_setting_names_is_sent_besides() -> None:
    rows = exported(["gpu_clocks_event_*", "gpu_power_watts", "gpu_sm_clock_hertz"])
    more = {row.name: row for row in rows[len(CONVENTIONS) :]}
    assert more[f"{PREFIX}gpu_sm_clock_hertz"].unit == "Hz"
    assert more[f"{PREFIX}gpu_clocks_event_sw_power_cap"].whole
    assert f"{PREFIX}gpu_power_watts" not in more, "it has a name of the conventions"
    assert len({row.metric for row in rows}) == len(rows)


def test_a_recipient_holds_as_much_as_it_may_and_the_oldest_goes() -> None:
    recipient = Recipient[str](logging.getLogger("test"), "r", 5, len)
    assert recipient.add("aa") == recipient.add("bbb") == []
    assert recipient.add("c") == ["aa"]
    assert recipient.first == "bbb"
    assert recipient.add("dddddd") == ["bbb", "c", "dddddd"], "one that is larger than all room too"
    assert recipient.first is None


def test_a_node_that_can_not_be_written_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    view = asyncio.run(small_cluster())
    gatherer = OtlpGatherer(view, CONVENTIONS)
    whole = gatherer._state

    def broken(its: Any) -> Any:
        if its.inventory.node == "n1":
            raise RuntimeError("planted")
        return whole(its)

    monkeypatch.setattr(gatherer, "_state", broken)
    assert {point.node for point in sent(gatherer)} == {"n2"}
    assert "node/n1/otlp" in view.pages_aside
    monkeypatch.undo()
    assert {point.node for point in sent(gatherer)} == {"n1", "n2"}
    assert "node/n1/otlp" not in view.pages_aside


@given(st.lists(st.integers(1, 400), max_size=30), st.integers(100, 1000))
def test_requests_are_as_long_as_they_may_be_and_no_resource_is_cut(sizes: list[int], most: int) -> None:
    found = requests([(bytes([size % 251]) * size, 1) for size in sizes], most)
    assert b"".join(body for body, _ in found) == b"".join(bytes([n % 251]) * n for n in sizes)
    assert sum(count for _, count in found) == len(sizes)
    assert all(len(body) <= most or count == 1 for body, count in found)


@given(st.binary(max_size=40))
def test_an_answer_of_another_form_is_an_error_or_nothing(answer: bytes) -> None:
    with suppress(ValueError):
        count, why = refused(answer)
        assert count >= 0
        assert isinstance(why, str)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=20), st.text(max_size=300) | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1)
    )
)
def test_attributes_come_back_as_they_were(pairs: dict[str, str | int]) -> None:
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    found = Resource.FromString(attributes(pairs, 1)).attributes
    assert {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in found} == {
        key: value for key, value in pairs.items() if value != ""
    }


@pytest.fixture(params=["http", "grpc"])
def receiver(request: pytest.FixtureRequest) -> Iterator[Otlp]:
    """A receiver of each protocol."""
    made: AbstractContextManager[Otlp] = by_http() if request.param == "http" else by_grpc()
    with made as found:
        yield found


@asynccontextmanager
async def pushing(view: FakeView, receiver: Otlp, request: pytest.FixtureRequest, **more: Any) -> AsyncIterator[None]:
    """Push every second for as long as the block runs."""
    protocol = OtlpProtocol(request.node.callspec.params["receiver"])
    config = OtlpConfig(url=receiver.url, protocol=protocol, every_seconds=1.0, **more)
    config.check("aggregator.otlp")
    task = asyncio.create_task(Exporter(view, config).run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def event(number: int, kind: str = "xid", node: str = "n1") -> Event:
    """An event of a GPU."""
    return Event(
        id=f"1-{number}",
        node=node,
        at=1_000 + number,
        kind=kind,
        gpu="GPU-n1-0",
        message="fell off the bus",
        data={"xid": 79},
    )


async def test_readings_and_events_arrive_and_each_event_once(
    receiver: Otlp, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("a-secret-of-thirty-two-characters\n")
    (tmp_path / "token").chmod(0o600)
    view = await small_cluster()
    view.happened = [event(2), event(1)]
    async with pushing(view, receiver, request, token_file=tmp_path / "token"):
        await until(lambda: receiver.records and receiver.points)
        view.happened.insert(0, event(3, "collector_started", "n2"))
        pushed = len(receiver.points)
        await until(lambda: len(receiver.points) >= 3 * pushed)
    assert [(one.node, one.attributes["kilowatch.event.id"]) for one in receiver.records] == [
        ("n1", "1-1"),
        ("n1", "1-2"),
        ("n2", "1-3"),
    ]
    first = receiver.records[0]
    assert (first.name, first.severity, first.at) == ("kilowatch.xid", 17, 1_001)
    assert first.text == "xid 79: fell off the bus"
    assert (first.attributes["hw.id"], first.attributes["kilowatch.xid"]) == ("GPU-n1-0", 79)
    assert receiver.tokens == {"Bearer a-secret-of-thirty-two-characters"}
    assert view.stats.otlp_sent >= pushed
    assert view.stats.otlp_dropped == view.stats.otlp_errors == 0


async def test_a_receiver_that_is_away_gets_it_later_and_what_it_refuses_is_counted(
    receiver: Otlp, request: pytest.FixtureRequest
) -> None:
    view = await small_cluster()
    view.happened = [event(1)]
    receiver.status = 503
    async with pushing(view, receiver, request):
        await until(lambda: view.stats.otlp_errors >= 2)
        assert view.stats.otlp_sent == view.stats.otlp_dropped == 0
        receiver.status = 200
        await until(lambda: receiver.records)
        moments = {point.at for point in receiver.points}
        assert len(receiver.points) > len({point[:2] for point in receiver.points}), moments
        sent_so_far = view.stats.otlp_sent
        assert sent_so_far > 0
        receiver.refuses = 3
        await until(lambda: view.stats.otlp_dropped >= 3)
        receiver.refuses, receiver.status = 0, 400
        dropped = view.stats.otlp_dropped
        await until(lambda: view.stats.otlp_dropped > dropped + 3)


async def test_what_waits_is_bounded(receiver: Otlp, request: pytest.FixtureRequest) -> None:
    view = await small_cluster()
    receiver.status = 503
    protocol = OtlpProtocol(request.node.callspec.params["receiver"])
    config = OtlpConfig(url=receiver.url, protocol=protocol, every_seconds=1.0)
    exporter = Exporter(view, msgspec.structs.replace(config, waiting_bytes=1000))
    task = asyncio.create_task(exporter.run())
    try:
        await until(lambda: view.stats.otlp_dropped > 0)
        assert view.stats.otlp_sent == 0
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"url": "collector:4318"}, "no address"),
        ({"url": "http://a:4317/v1", "protocol": "grpc"}, "without a path"),
        ({"url": "http://a", "protocol": "grpc"}, "no address for gRPC"),
        ({"url": "http://a:4318", "every_seconds": 0.5}, "at least 1"),
        ({"url": "http://a:4318", "waiting_bytes": 1}, "at least 1048576"),
        ({"url": "http://a:4318", "more": ["gpu_powr_watts"]}, "gpu_power_watts"),
    ],
)
def test_settings_that_can_not_work_are_refused(settings: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        msgspec.convert(settings, OtlpConfig).check("aggregator.otlp")


def test_a_token_that_can_not_be_read_is_told_by_the_check_of_the_settings(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    for name, config in (
        ("token_file", OtlpConfig(url="http://a:4318", token_file=gone)),
        ("ca_file", OtlpConfig(url="http://a:4318", ca_file=gone)),
    ):
        with pytest.raises(ConfigError, match=name):
            config.check_secrets()


def test_grpc_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    config = OtlpConfig(url="http://a:4317", protocol=OtlpProtocol.GRPC)
    with pytest.raises(ConfigError, match=r"pip install 'kilowatch\[otlp\]'"):
        config.check("aggregator.otlp")


def test_nothing_of_it_is_imported_where_it_is_off() -> None:
    code = (
        "import sys, asyncio; from aggregator.service import Aggregator; from aggregator.config import AggregatorConfig;"
        "from pathlib import Path; a = Aggregator(AggregatorConfig(data_dir=Path('/nowhere'))); a._configured_works();"
        "print([m for m in sys.modules if m.startswith(('aggregator.remote.otlp', 'grpc', 'opentelemetry'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert AggregatorConfig().otlp.url == ""


def test_a_request_of_a_large_node_fits() -> None:
    """The largest node has fewer bytes than a request."""
    view = FakeView()
    view.add(inventory("n1", gpus=16, links=18))
    now = view.now()
    view.fleet.nodes["n1"].seen = now
    for matrix in view.fleet.matrices:
        matrix.gauges[:], matrix.counters[:], matrix.seen[:] = 1.0, 1.0, now
    gatherer = OtlpGatherer(view, exported(["*"]))
    [(body, count)] = gatherer.metrics(asyncio.run(gatherer.readings()))
    per_gpu = sum(len(block.names) for block in SCHEMA.blocks if block.table is Table.GPU)
    assert count > 16 * per_gpu
    assert len(body) < MOST_BYTES
    assert records(b"") == []
