"""A removed or truncated sealed file loses its own content, and nothing else."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import subprocess
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from aggregator.config import StoreConfig
from aggregator.store import checksum, embedded
from aggregator.store.protocol import FleetPast, HistorySeries, PastInstants
from aggregator.store.sealed_files import SealedFiles
from kilowatch.__main__ import main
from telemetry.errors import StoreError
from telemetry.metric import Lane, Table
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.aggregator.feed import HOUR, Feed
from tests.aggregator.http_client import door
from tests.aggregator.node import START, expected, sampled_at
from tests.aggregator.test_http_past import Fed

SECOND = 10**9
POWER = SCHEMA.blocks[GPU_FAST].names.index("gpu_power_watts")
REACH = {Lane.FAST: 3 * SECOND, Lane.SLOW: 45 * SECOND}
SEQS = range(120)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with an hour of nodes a and b that is sealed, a file each."""
    feed = Feed(tmp_path_factory.mktemp("sealed"), StoreConfig(slice_rows=240))
    for node in "ab":
        feed.hello(node)
        feed.send(node, *SEQS)
    feed.commit()
    feed.wall += HOUR
    feed.seal()
    feed.store.close()
    return feed.config.data_dir


@pytest.fixture
def feed(sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Feed:
    """An aggregator that began again over a sealed hour of nodes a and b, and has later frames; queries do not
    wait for lost files."""
    monkeypatch.setattr(embedded, "RETRY_SECONDS", -1.0)  # to sleep so long is an error
    shutil.copytree(sealed, tmp_path / "data")
    feed = Feed(tmp_path / "data", StoreConfig(slice_rows=240))
    feed.wall += HOUR
    for node in "ab":
        feed.hello(node)
        feed.resend(node, *range(120, 130))
    feed.commit()
    return feed


def files(feed: Feed, kind: str = "sealed") -> list[Path]:
    """Those of the GPUs' fast readings: of node a, of node b."""
    there = (feed.config.data_dir / kind / "gpu_fast").glob("*.parquet")
    found = sorted(there, key=lambda path: len(path.name))
    assert len(found) == 2
    return found


def past(feed: Feed, seq: int) -> FleetPast:
    """All GPUs at the time of a frame."""
    when = PastInstants(sampled_at(seq), SECOND, 1)
    return feed.store.past(Table.GPU, ("gpu_power_watts",), when, REACH, None)


def history(feed: Feed, node: str) -> HistorySeries:
    """Every reading of a GPU."""
    return feed.store.history(f"GPU-{node}-0", "gpu_power_watts", START, START + HOUR, 0)


def powers(found: FleetPast) -> dict[str, float]:
    """By GPU."""
    values = found.columns["gpu_power_watts"][0].tolist()
    return dict(zip([device.key for device in found.devices], values, strict=True))


@pytest.mark.parametrize("cut", [False, True], ids=["removed", "cut short"])
def test_a_file_that_is_lost_is_said_once_and_the_rest_is_answered(
    feed: Feed, caplog: pytest.LogCaptureFixture, cut: bool
) -> None:
    """By the past and by history, whoever meets it first."""
    whole = powers(past(feed, 50))
    assert sorted(whole) == [f"GPU-{node}-{row}" for node in "ab" for row in range(2)]
    lost = files(feed)[0]
    if cut:
        lost.write_bytes(lost.read_bytes()[:1000])
    else:
        lost.unlink()
    caplog.set_level(logging.ERROR)
    for _ in range(3):
        left = powers(past(feed, 50))
        assert {key: left[key] for key in ("GPU-b-0", "GPU-b-1")} == {key: whole[key] for key in ("GPU-b-0", "GPU-b-1")}
        assert "GPU-a-0" not in left
        assert powers(past(feed, 125))["GPU-a-0"] == expected("a", 0, [125])[0, POWER]
        assert len(history(feed, "b").at) == 130
        assert history(feed, "a").step == 10  # of that hour the roll-up is there still
    said = [record.getMessage() for record in caplog.records if str(lost) in record.getMessage()]
    assert len(said) == 1
    assert ("bytes have changed" if cut else "not there any more") in said[0]
    assert "240 rows of gpu_fast" in said[0]
    assert "restart the aggregator" in said[0]
    assert feed.store.status().lost_files == 1


def test_history_that_meets_it_first_goes_on_too(feed: Feed) -> None:
    """It asks in another thread, in another way."""
    for path in [*files(feed), *files(feed, "rollup_10")]:
        path.unlink()
    assert history(feed, "a").step == 60
    assert feed.store.status().lost_files == 4


def test_the_manifest_forgets_it_and_retention_goes_on(feed: Feed, caplog: pytest.LogCaptureFixture) -> None:
    """At the next start nothing is missed; a file that was put back is read again."""
    lost = files(feed)[0]
    kept = lost.read_bytes()
    sealed = feed.store.size()["sealed"]
    lost.unlink()
    past(feed, 50)
    assert feed.store.size()["sealed"] == sealed - len(kept)
    feed.wall += 60 * SECOND
    feed.seal()
    feed.reopen()
    assert "in the manifest but not there" not in caplog.text
    assert "GPU-a-0" not in powers(past(feed, 50))
    lost.write_bytes(kept)
    feed.reopen()
    assert powers(past(feed, 50))["GPU-a-0"] == expected("a", 0, [50])[0, POWER]
    assert feed.store.status().lost_files == 0


def flip(path: Path, at: int = -1000) -> None:
    """Flip a bit of a file, which keeps its size."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("part", [0.05, 0.3, 0.6, 0.9], ids=str)
def test_a_flipped_bit_is_found_before_a_number_is_shown(feed: Feed, part: float) -> None:
    """Most flips decode without an error, into another number: the query must not believe them."""
    whole = powers(past(feed, 50))
    feed.reopen()
    damaged = files(feed)[0]
    flip(damaged, int(damaged.stat().st_size * part))
    left = powers(past(feed, 50))
    assert "GPU-a-0" not in left
    assert left["GPU-b-0"] == whole["GPU-b-0"]
    (lost,) = feed.store._sealed.lost
    assert (lost.path, lost.lost) == (str(damaged.relative_to(feed.config.data_dir)), "damaged")


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_an_answer_says_which_window_is_incomplete(feed: Feed, how: str) -> None:
    """Also when a roll-up fills in, also after a restart, until the file is back."""
    hour = (sampled_at(0), sampled_at(119) + 1)
    assert (past(feed, 50).incomplete, history(feed, "a").incomplete) == ([], [])
    feed.reopen()
    path = files(feed)[0]
    kept = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        flip(path)
    for _ in range(2):
        assert history(feed, "a").incomplete == [hour]
        assert history(feed, "a").step == 10
        assert history(feed, "b").incomplete == []
        assert past(feed, 50).incomplete == [(sampled_at(47), sampled_at(50) + 1)]
        assert past(feed, 125).incomplete == []
        feed.wall += 60 * SECOND
        feed.seal()
        feed.reopen()
        assert feed.store.status().lost_files == 1
    path.write_bytes(kept)
    feed.reopen()
    assert (history(feed, "a").incomplete, history(feed, "a").step) == ([], 0.0)
    assert feed.store.status().lost_files == 0


def test_a_lost_roll_up_whose_readings_are_there_is_not_missed(feed: Feed) -> None:
    """The same means, from the readings that it was made of."""

    def means() -> HistorySeries:
        return feed.store.history("GPU-a-0", "gpu_power_watts", START, START + HOUR, 10)

    before = means()
    for path in files(feed, "rollup_10"):
        path.unlink()
    assert means() == before
    assert feed.store.status().lost_files == 2


def upkeep(feed: Feed) -> None:
    """Check all files, and begin the refills that were found."""
    for _ in range(len(feed.store._sealed.index.files) + 1):
        feed.store.check_next()
    feed.seal()
    feed.ingest.refill(feed.store.drain_refill(), feed.now)


def test_lost_readings_come_again_from_the_rings(feed: Feed) -> None:
    """Bit for bit; of each frame only what the lost file held, so that nothing is stored twice."""
    before, load = history(feed, "a"), node_load(feed)
    lost = files(feed)[0]
    flip(lost)
    upkeep(feed)
    feed.now += 1.0
    (command,) = feed.ingest.drain_commands(feed.now)
    assert (command.node, command.command.first, command.command.last) == ("a", 0, 119)
    assert feed.ingest.ledger.missing == 120
    feed.resend("a", *SEQS[:70])
    feed.commit()
    upkeep(feed)
    assert history(feed, "a").incomplete  # half of it is still out
    feed.resend("a", *SEQS[50:])
    feed.commit()
    upkeep(feed)
    assert feed.ingest.ledger.missing == 0
    for _ in range(2):
        assert history(feed, "a") == before
        assert node_load(feed) == load
        assert powers(past(feed, 50))["GPU-a-1"] == expected("a", 1, [50])[0, POWER]
        assert feed.store.status().lost_files == 0
        assert not lost.exists()
        feed.wall += HOUR
        feed.seal()
        feed.reopen()


def test_what_the_ring_has_no_longer_is_a_hole(feed: Feed) -> None:
    """Of exact size, and the window stays incomplete, also after a restart; nothing is requested twice."""
    files(feed)[0].unlink()
    feed.reopen()
    feed.hello("a")
    upkeep(feed)
    feed.gone("a", 0, 39)
    feed.resend("a", *range(40, 120))
    feed.commit()
    upkeep(feed)
    assert feed.stats.frames_lost == 40
    feed.reopen()
    feed.hello("a")
    upkeep(feed)
    assert feed.ingest.ledger.missing == 0
    found = history(feed, "a")
    assert found.incomplete == [(sampled_at(0), sampled_at(119) + 1)]


def points(feed: Feed) -> tuple[int, int]:
    """How many readings of a GPU there are, and at how many instants."""
    at = history(feed, "a").at
    return len(at), len(set(at))


@pytest.mark.parametrize("came", [0, 70, 120])
def test_a_file_that_is_put_back_after_its_refill_doubles_nothing(feed: Feed, came: int) -> None:
    """Whatever of it came again meanwhile; where nothing did, it is read again."""
    lost = files(feed)[0]
    kept = lost.read_bytes()
    lost.unlink()
    upkeep(feed)
    if came:
        feed.resend("a", *range(came))
    feed.commit()
    upkeep(feed)
    lost.write_bytes(kept)
    for _ in range(2):
        feed.reopen()
        feed.hello("a")
        upkeep(feed)
        assert points(feed) == ((130, 130) if came != 70 else (points(feed)[1], points(feed)[1]))
    if came == 0:
        assert feed.store.status().lost_files == 0


def test_a_refill_goes_on_after_a_restart_and_doubles_nothing(feed: Feed) -> None:
    """After kill -9 at any of its commits: what came is not requested again, what is out is."""
    before = history(feed, "a")
    files(feed)[0].unlink()
    upkeep(feed)
    feed.resend("a", *range(70))
    feed.commit()
    for _ in range(2):
        feed.reopen()
        feed.hello("a")
        upkeep(feed)
        assert feed.ingest.ledger.missing == 50
    feed.resend("a", *range(120))
    feed.commit()
    feed.reopen()  # all came, and nobody has noted it
    feed.hello("a")
    upkeep(feed)
    upkeep(feed)
    assert feed.ingest.ledger.missing == 0
    assert history(feed, "a") == before
    assert feed.store.status().lost_files == 0


def test_when_all_of_an_hour_is_lost_nothing_is_requested(feed: Feed) -> None:
    """No file says which frames there were: the window stays incomplete."""
    for path in files_of(feed, "sealed"):
        path.unlink()
    upkeep(feed)
    assert feed.ingest.ledger.missing == 0
    assert history(feed, "a").incomplete


def node_load(feed: Feed) -> HistorySeries:
    """A reading of another block in the same frames."""
    return feed.store.history("a", "node_load_1m", START, START + HOUR, 0)


def test_the_endless_check_finds_what_no_query_meets(feed: Feed) -> None:
    """Files one at a time, the newest first, every one in a pass."""
    count = len(feed.store._sealed.index.files)
    flip(files(feed, "rollup_3600")[1])
    for _ in range(count):
        feed.store.check_next()
    assert [file.step for file in feed.store._sealed.lost] == [3600]
    files(feed)[0].unlink()
    for _ in range(2):  # the next pass begins with what is not there
        feed.store.check_next()
    assert feed.store.status().lost_files == 2


def test_a_lost_file_goes_with_its_age(feed: Feed) -> None:
    """A file that was removed is not missed for ever."""
    flip(files(feed)[0])
    assert past(feed, 50).incomplete
    feed.wall += round(8 * 86_400 * SECOND)
    feed.seal()
    assert feed.store.status().lost_files == 0
    assert not files_left(feed)


def files_left(feed: Feed) -> list[Path]:
    """Everything that is left of the readings of a week ago."""
    return list((feed.config.data_dir / "sealed" / "gpu_fast").iterdir())


def test_a_stranger_verifies_one_file_with_standard_tools(feed: Feed, tmp_path: Path) -> None:
    """By `sha256sum`, and by the footer's value over the file with that value blank."""
    path = files(feed)[0]
    copy = tmp_path / path.name
    for one in (path, checksum.sidecar_of(path)):
        (tmp_path / one.name).write_bytes(one.read_bytes())
    check = ["sha256sum", "--check", checksum.sidecar_of(path).name]
    assert subprocess.run(check, cwd=tmp_path, check=False, capture_output=True).returncode == 0
    content = copy.read_bytes()
    (digest,) = duckdb.sql(
        f"select value::varchar from parquet_kv_metadata('{copy}') where key = 'kilowatch_sha256'"
    ).fetchall()[0]
    blank = content.replace(digest.encode(), b"0" * 64)
    assert hashlib.sha256(blank).hexdigest() == digest
    assert checksum.verify(copy) is checksum.FileState.GOOD
    flip(copy)
    assert checksum.verify(copy) is checksum.FileState.DAMAGED
    assert subprocess.run(check, cwd=tmp_path, check=False, capture_output=True).returncode == 1


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 100, b"\xff\xff\xff\xffPAR1", b"\0" * 4 + b"PAR1"], ids=repr)
def test_rubbish_is_no_sealed_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "2025-11-21T04-00-00Z.parquet"
    path.write_bytes(content)
    assert checksum.verify(path) is checksum.FileState.UNPROVEN
    assert checksum.verify(path, "ab" * 32) is checksum.FileState.DAMAGED
    with pytest.raises(ValueError, match="placeholder"):
        checksum.stamp(path, path.name)
    path.unlink()
    assert checksum.verify(path) is checksum.FileState.GONE


def test_the_store_of_an_older_release_is_read_on(feed: Feed) -> None:
    """Its files carry no checksum and its manifest has no column for one: nothing is called damaged."""
    root = feed.config.data_dir
    feed.store.close()
    with duckdb.connect(str(root / "hot.duckdb")) as hot:
        for column in ("sha256", "lost"):
            hot.execute(f"alter table files drop column {column}")
    for path in [path for kind in ("sealed", "rollup_10") for path in (root / kind).glob("*/*.parquet")]:
        aside = path.with_suffix(".old")
        duckdb.sql(f"copy (from read_parquet('{path}')) to '{aside}' (format parquet)")
        checksum.sidecar_of(path).unlink()
        aside.rename(path)
        with duckdb.connect(str(root / "hot.duckdb")) as hot:
            size = path.stat().st_size
            hot.execute("update files set bytes = ? where path = ?", [size, str(path.relative_to(root))])
    feed.reopen()
    assert sorted(powers(past(feed, 50))) == [f"GPU-{node}-{row}" for node in "ab" for row in range(2)]
    for _ in range(50):
        feed.store.check_next()
    assert feed.store.status().lost_files == 0


def test_verify_names_what_is_damaged_or_gone(feed: Feed) -> None:
    """Beside the aggregator, with exit code 1."""
    run = CliRunner().invoke
    root = str(feed.config.data_dir)
    good = run(main, ["verify", "--data", root])
    assert good.exit_code == 0, good.output
    assert "0 damaged, 0 gone, 0 without" in good.output
    first, second = files(feed)
    flip(first)
    second.unlink()
    bad = run(main, ["verify", "--data", root])
    assert bad.exit_code == 1
    assert f"damaged   {first}: its bytes have changed" in bad.output
    assert f"gone      {second}: it is gone" in bad.output
    assert "1 damaged, 1 gone" in bad.output
    found = json.loads(run(main, ["verify", "--data", root, "--json"]).output)
    assert (found[str(first)], found[str(second)]) == ("damaged", "gone")
    assert run(main, ["verify", str(first)]).exit_code == 1
    assert run(main, ["verify", str(files_of(feed, "rollup_60")[0])]).exit_code == 0


def files_of(feed: Feed, kind: str) -> list[Path]:
    """The files of a kind that are there."""
    return sorted((feed.config.data_dir / kind).glob("*/*.parquet"))


def test_many_that_are_lost_together_are_not_named_one_by_one(feed: Feed, caplog: pytest.LogCaptureFixture) -> None:
    """A removed folder: five log lines and a number."""
    several = [*files(feed), *files(feed, "rollup_10"), *files(feed, "rollup_60")]
    several += files(feed, "rollup_3600")
    for path in several:
        path.unlink()
    caplog.set_level(logging.ERROR)
    assert powers(past(feed, 125))["GPU-b-1"] == expected("b", 1, [125])[0, POWER]
    assert past(feed, 50).devices == []
    assert len(caplog.records) == 6
    assert "3 more sealed files" in caplog.records[-1].getMessage()


def test_a_fault_that_is_none_of_a_file_is_told_at_once(feed: Feed) -> None:
    """Nothing is lost, so that nothing is left out."""
    with pytest.raises(StoreError, match="node_load_1m"):
        feed.store.past(Table.GPU, ("node_load_1m",), PastInstants(START, 1, 1), REACH, None)
    assert feed.store.status().lost_files == 0


def test_what_retention_removes_is_not_lost(feed: Feed) -> None:
    """It takes a file off the sealed before it removes it."""
    feed.wall += round(8 * 86_400 * SECOND)
    feed.seal()
    assert feed.store.size()["sealed"] == 0
    assert powers(past(feed, 50))
    assert feed.store.status().lost_files == 0


def test_what_retention_can_not_remove_is_said_and_tried_again(feed: Feed) -> None:
    """The aggregator goes on meanwhile, and so do questions."""
    path = files(feed)[0]
    aside = path.rename(path.with_suffix(".aside"))
    path.mkdir()
    feed.wall += round(8 * 86_400 * SECOND)
    with pytest.raises(StoreError, match=r"can.t remove what is too old: .* Make it writable"):
        feed.seal()
    path.rmdir()
    aside.rename(path)
    assert powers(past(feed, 50))["GPU-a-0"]
    feed.wall += 60 * SECOND
    feed.seal()
    assert feed.store.size()["sealed"] == 0
    assert not path.exists()
    assert feed.store.status().lost_files == 0


def test_a_disk_that_does_not_answer_has_lost_nothing(feed: Feed, tmp_path: Path) -> None:
    """Only what is certainly gone is forgotten."""
    index = feed.store._sealed.index
    for name in ("sealed", "rollup_10", "rollup_60", "rollup_3600"):
        (tmp_path / name).symlink_to(name)  # it leads to itself: an error, and not "no such file"
    sealed = SealedFiles(tmp_path)
    sealed.reset(index.files)
    assert not sealed.find_lost()
    assert sealed.index.files == index.files
    (tmp_path / "sealed").unlink()
    assert sealed.find_lost()
    assert {file.step for file in sealed.index.files} == {10, 60, 3600}


async def test_health_and_metrics_count_it(feed: Feed) -> None:
    """A warning: no restart brings the file back."""
    view = Fed(feed)
    async with door(view) as client:
        assert (await client.json("/healthz"))[1]["warnings"] == []
        files(feed)[1].unlink()
        past(feed, 50)
        status, body = await client.json("/healthz")
        assert (status, body["ok"]) == (200, True)
        assert body["warnings"] == [
            "1 file(s) of the store were removed or damaged by another program; `kilowatch verify` names them."
        ]
        async with client.session.get(f"{client.url}/metrics") as answer:
            assert "kilowatch_aggregator_store_files_lost 1" in await answer.text()
