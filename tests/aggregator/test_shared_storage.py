"""One contract for every shared storage: a folder, and S3 on a real server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregator.settings.shared_storage import SharedStorageConfig
from aggregator.store.shared.storage import NameTakenError, SharedStorage, StoredObject
from telemetry.errors import ConfigError, StoreError
from tests.aggregator.feed import HOUR
from tests.aggregator.test_shared_store import MINUTE, Member, values


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """S3 over HTTP, in memory; its objects go through the same client as Amazon's."""
    from moto.server import ThreadedMotoServer  # a second of imports, for these tests alone

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    found = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    found.start()
    host, port = found.get_host_and_port()
    yield f"http://{host}:{port}"
    found.stop()


@pytest.fixture
def s3(server: str, tmp_path: Path, request: pytest.FixtureRequest) -> SharedStorageConfig:
    """A fresh bucket."""
    for name in ("access", "secret"):
        (tmp_path / name).write_text(f"{name}\n")
    bucket = f"b{abs(hash(request.node.name))}"
    config = SharedStorageConfig(
        url=f"s3://{bucket}/some/prefix",
        endpoint_url=server,
        access_key_file=tmp_path / "access",
        secret_key_file=tmp_path / "secret",
    )
    SharedStorage(config).filesystem.mkdir(bucket)
    return config


@pytest.fixture(params=["folder", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> SharedStorage:
    if request.param == "folder":
        (tmp_path / "shared").mkdir()
        return SharedStorage(SharedStorageConfig(url=str(tmp_path / "shared")))
    config: SharedStorageConfig = request.getfixturevalue("s3")
    return SharedStorage(config)


def test_what_is_put_is_listed_and_read_until_it_is_removed(storage: SharedStorage, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"some bytes")
    assert storage.list() == []
    storage.put(local, "group=2f/one")
    storage.put(local, "two")
    assert storage.list() == [StoredObject("group=2f/one", 10), StoredObject("two", 10)]
    with storage.open("group=2f/one") as file:
        assert file.read() == b"some bytes"
    storage.remove("two")
    storage.remove("group=2f/one")
    assert storage.list() == []


def test_a_name_is_never_written_twice(storage: SharedStorage, tmp_path: Path) -> None:
    (tmp_path / "first").write_bytes(b"first")
    (tmp_path / "second").write_bytes(b"other")
    storage.put(tmp_path / "first", "name")
    with pytest.raises(NameTakenError):
        storage.put(tmp_path / "second", "name")
    with storage.open("name") as file:
        assert file.read() == b"first"


def test_what_is_not_there_is_said_so(storage: SharedStorage) -> None:
    with pytest.raises(FileNotFoundError), storage.open("none"):
        pass


def test_members_share_segments_on_s3_as_in_a_folder(s3: SharedStorageConfig, tmp_path: Path) -> None:
    member = Member(tmp_path / "one", s3)
    member.hello("a")
    member.send("a", *range(30))
    member.commit()
    member.pass_time(MINUTE)
    member.send("a", *range(30, 60))
    member.commit()
    member.pass_time(MINUTE)
    assert member.store.shared_status().problem == ""
    assert member.read() == values(*range(60))
    other = Member(tmp_path / "two", s3, epoch=2)
    other.wall = member.wall
    other.upkeep()
    assert other.read() == values(*range(60))
    other.pass_time(2 * HOUR)
    other.pass_time(MINUTE)
    assert other.read(60.0) == [sum(values(*range(60))) / 60]  # type: ignore[arg-type]
    assert other.read() == values(*range(60))
    member.store.close()
    other.store.close()


def test_s3_that_does_not_answer_is_a_problem_that_says_where(tmp_path: Path) -> None:
    storage = SharedStorage(SharedStorageConfig(url="s3://bucket/prefix", endpoint_url="http://127.0.0.1:9"))
    with pytest.raises(StoreError, match="s3://bucket/prefix: can't list"):
        storage.list()
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(StoreError, match="can't write"):
        storage.put(tmp_path / "file", "name")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": "relative/path"}, "neither an absolute path"),
        ({"url": "s3://"}, "no bucket"),
        ({"url": "/x", "access_key_file": Path("/y")}, "together"),
        ({"url": "/x", "spill_seconds": 0.0}, "more than 0 seconds"),
    ],
)
def test_settings_that_can_not_work_are_refused(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        SharedStorageConfig(**settings).check("shared")  # type: ignore[arg-type]


def test_a_key_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    config = SharedStorageConfig(url="s3://bucket", access_key_file=gone, secret_key_file=gone)
    with pytest.raises(ConfigError, match="gone"):
        SharedStorage(config)
