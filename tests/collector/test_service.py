"""A running collector: what may go wrong around it, and what it costs."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from collector.config import CollectorConfig, listen_address
from collector.ring.ring import Ring
from collector.ring.writer import RingWriter
from collector.service import claim, run_collector
from telemetry.errors import ConfigError
from telemetry.wire.inventory import FrameSpan, NodeState
from telemetry.wire.mqtt import BrokerConfig
from tests.brokers import Mosquitto, free_port
from tests.collector.bus import collecting, config_of, reading
from tests.fakes import FakeSource
from tests.faults.record import Told
from tests.kit.waiting import until, within

ROOT = Path(__file__).parents[2]


@pytest.fixture
def nobody() -> BrokerConfig:
    """A broker that is not there."""
    return BrokerConfig(port=free_port())


async def test_two_collectors_may_not_share_a_state_folder(nobody: BrokerConfig, tmp_path: Path) -> None:
    config = config_of(nobody, tmp_path)
    source = FakeSource()
    async with collecting(config, source):
        await until(lambda: source.calls)
        with pytest.raises(ConfigError, match=f"in use by the collector with process id {os.getpid()}"):
            await run_collector(config, source=FakeSource())
    async with collecting(config, FakeSource()):
        pass  # the lock is free again


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from collector.service import claim\n"
        "with claim(Path(sys.argv[1])): os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, cwd=ROOT)
    with claim(tmp_path):
        assert (tmp_path / "collector.lock").read_text() == f"{os.getpid()}\n"


async def test_a_state_folder_that_can_not_be_used_costs_the_ring_and_nothing_else(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    config = config_of(mosquitto.config, tmp_path)
    async with reading(mosquitto.config) as reader, collecting(config, FakeSource()) as running:
        await until(lambda: len(reader.frames) >= 5)
        await until(lambda: any(event.kind == "ring_down" for event in reader.events))
        assert reader.statuses[-1].ring == ()
        summary = await running.end()
    assert summary.frames_published >= 5
    assert summary.frames_unkept >= 5


async def test_a_disk_that_works_again_is_used_again_and_the_hole_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is removed under the collector, and comes back."""
    monkeypatch.setattr("collector.ring.writer.RETRY_AFTER", 0.0)
    changes: list[bool] = []
    ring = Ring(tmp_path / "ring", 1 << 20, segment_bytes=1024)
    writer = RingWriter(ring, 7, lambda works, _: changes.append(works))
    task = asyncio.create_task(writer.run())

    async def put(first: int, last: int) -> None:
        for seq in range(first, last + 1):
            writer.put(seq, bytes(100))
            await writer.settled(10)

    await put(0, 29)
    shutil.rmtree(tmp_path / "ring")
    (tmp_path / "ring").write_text("in the way")
    await put(30, 59)
    assert changes == [False]
    assert writer.unkept > 0
    (tmp_path / "ring").unlink()
    (tmp_path / "ring").mkdir()
    lost = writer.unkept
    await put(60, 69)
    assert changes == [False, True]
    assert writer.unkept == lost
    assert writer.spans()[-1] == FrameSpan(7, 60, 69)
    frames = await writer.chunk(7, 0, 100, 1 << 20, 100)
    assert [seq for seq, _ in frames] == list(range(60, 70))  # what was deleted is no error
    writer.close()
    async with within():
        await task


FULL = """
import asyncio, resource, signal, sys
from pathlib import Path
from collector.service import run_collector
from telemetry.wire.mqtt import BrokerConfig
from tests.collector.bus import collecting, config_of
from tests.fakes import FakeSource
from tests.kit.waiting import until
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

async def main(port, folder):
    source = FakeSource()
    async with collecting(config_of(BrokerConfig(port=port), folder), source) as running:
        await until(lambda: len(source.calls) >= 5)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
        await until(lambda: len(source.calls) >= 40)
        summary = await running.end()
    assert summary.frames_unkept > 0 and summary.frames >= 40, summary
    assert summary.frames_published == summary.frames and summary.frames_unsent == 0, summary

asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
"""


async def test_a_full_disk_does_not_stop_live_frames(
    mosquitto: Mosquitto, tmp_path: Path, record_property: Told
) -> None:
    async with reading(mosquitto.config) as reader:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", FULL, str(mosquitto.port), str(tmp_path), env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        async with within():
            assert await process.wait() == 0
        await until(lambda: reader.statuses[-1].state is NodeState.OFFLINE)
        seqs = [frame.seq for frame in reader.frames]
        assert seqs == list(range(len(seqs)))
        (span,) = {span.session: span for span in reader.statuses[-1].ring}.values()
        assert span.last < seqs[-1]
        record_property("expected", "live frames go on without a ring")
        record_property("observed", f"{len(seqs)} live frames in order, the ring ended at number {span.last}")


async def test_a_source_that_names_nothing_ends_it_with_its_own_words(nobody: BrokerConfig, tmp_path: Path) -> None:
    class Wrong(FakeSource):
        async def open(self) -> None:
            raise ConfigError("collector.source", "there is no such file", "Look again.")

    source = Wrong()
    with pytest.raises(ConfigError, match="there is no such file"):
        await run_collector(config_of(nobody, tmp_path), source=source)
    assert source.closed


async def test_a_password_file_that_is_not_there_ends_it_at_once(tmp_path: Path) -> None:
    broker = BrokerConfig(username="n1", password_file=tmp_path / "nothing")
    with pytest.raises(ConfigError, match="password_file"):
        await run_collector(config_of(broker, tmp_path), source=FakeSource())


async def test_a_hundred_collectors_fit_in_one_process(mosquitto: Mosquitto, tmp_path: Path) -> None:
    stop = asyncio.Event()
    sources = [FakeSource() for _ in range(100)]
    configs = [
        config_of(
            mosquitto.config,
            tmp_path,
            node=f"node-{number}",
            interval=1.0,
            ring_enabled=number % 2 == 0,
            state_dir=tmp_path / str(number),
        )
        for number in range(100)
    ]
    tasks = [
        asyncio.create_task(run_collector(config, stop=stop, source=source))
        for config, source in zip(configs, sources, strict=True)
    ]
    await until(lambda: all(len(source.calls) >= 3 for source in sources))
    stop.set()
    async with within():
        summaries = await asyncio.gather(*tasks)
    assert all(summary.frames >= 3 for summary in summaries)
    assert sum(summary.frames_published > 0 for summary in summaries) == 100
    assert all(summary.frames_unkept == 0 for summary in summaries)


def test_a_collector_stays_small() -> None:
    """No NumPy, no database, no web framework: a node has better use for its memory."""
    code = (
        "import sys, collector.service, collector.sources, collector.commands.once, collector.page.metrics_page\n"
        "heavy = {'numpy', 'duckdb', 'textual', 'aiohttp', 'pynvml', 'prometheus_client', 'gmqtt'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"node": "a/b"}, "collector.node: 'a/b' can't be part of an MQTT topic"),
        ({"cluster": "+"}, "collector.cluster"),
        ({"interval": 0}, "collector.interval: 0 s is out of range"),
        ({"interval": 30.0}, "collector.slow_interval: 15.0 s is out of range"),
        ({"ring_bytes": 5}, "collector.ring_bytes: 5 bytes are too few"),
        ({"backfill_bytes_per_second": 0}, "collector.backfill_bytes_per_second"),
        ({"metrics_listen": "9401"}, "collector.metrics_listen: '9401' is no address"),
        ({"metrics_listen": "::1:x"}, "Write host:port"),
    ],
)
def test_a_wrong_configuration_is_an_error_with_place_and_problem(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        CollectorConfig(**settings)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_defaults_work_and_addresses_are_read() -> None:
    assert CollectorConfig().node
    assert listen_address("x", "[::1]:9401") == ("::1", 9401)
    assert listen_address("x", ":9401") == ("127.0.0.1", 9401)
