"""Fixtures for all tests: real brokers, real recordings."""

from __future__ import annotations

import ast
import atexit
import gc
import os
import shutil
import sys
import tomllib
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_timeout  # type: ignore[import-untyped]
from hypothesis import settings

from tests.brokers import Broker, Embedded, Mosquitto
from tests.gate.unchanged import GROUPS
from tests.kit.skips import pytest_runtest_makereport  # noqa: F401 - a hook of pytest
from tests.kit.waiting import FACTOR

ROOT = Path(__file__).resolve().parents[1]
REAL_PARTS = (
    "mosquitto", "prometheus", "promtool", "prometheus-alertmanager", "amtool", "influxd",
    "victoria-metrics", "jsonnet", "gcc", "tmux", "openssl", "chromium", "systemd-analyze",
    "slurmctld", "fuser", "debootstrap", "buildah", "rpm",
)  # fmt: skip
"""What tests start; where one is missing they skip with a reason, but never in CI (tests/kit/skips.py)."""

settings.register_profile("any machine", deadline=None, derandomize=True)
settings.register_profile("fuzz", deadline=None, max_examples=500)
"""`make search`: fresh seeds. What it finds becomes an `@example`, or a test of its own."""
settings.load_profile("any machine")  # a busy machine or an unlucky seed is no failure

FREEZE, UNFREEZE = gc.freeze, gc.unfreeze
"""The functions themselves: `frozen_collection` puts others in their place."""
SYSTEMS = ("bench", "endtoend", "faults")
"""Folders whose tests need minutes of real time or several servers: `make test-systems`."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, and leave what was collected out of its later passes: these are
    millions of objects, and all of them stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        FREEZE()
        gc.enable()
        atexit.register(UNFREEZE)  # else libraries in C report what the end of Python leaves alone


LONG = 60.0
"""Seconds of a file that begins before the others."""


def long_files() -> dict[str, float]:
    """Return the seconds of the files that take longer by the record, and of those that a gate may have left out of
    it, which take no more than an hour."""
    record = tomllib.loads((ROOT / "tests/gate/seconds.toml").read_text(encoding="utf-8"))
    seconds = Counter(record["files"])
    for test, spent in record["heavy"].items():
        seconds[test.partition("::")[0]] += spent
    unknown = {file: 3600.0 for group in GROUPS for file in group.files if file not in seconds}
    return unknown | {file: spent for file, spent in seconds.items() if spent > LONG}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of such a folder as `systems`; `make test` leaves those out. The longest files come first, so
    that no worker begins with one when all others are done."""
    long = long_files()
    files = {path: path.relative_to(ROOT) for path in {item.path for item in items}}
    seconds = {path: long.get(file.as_posix(), 0.0) for path, file in files.items()}
    slow = {path for path, file in files.items() if file.parts[1] in SYSTEMS}
    items.sort(key=lambda item: -seconds[item.path])
    for item in items:
        if item.path in slow:
            item.add_marker(pytest.mark.systems)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> object:
    """Stretch the time limit of a test as its patience is."""
    stretched = settings._replace(timeout=settings.timeout * FACTOR)
    return pytest_timeout.pytest_timeout_set_timer(item, stretched)


def pytest_sessionstart() -> None:
    """CI must run the real parts: refuse to begin rather than skip them unseen."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    missing = [name for name in REAL_PARTS if shutil.which(name, path=path) is None]
    if os.environ.get("CI") and missing:
        pytest.exit(f"CI must run {', '.join(missing)}: sh deploy/packages.sh", returncode=1)


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A state folder for all that tests start: that of the user stays as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def frozen_collection() -> Iterator[None]:
    """Leave what was collected out of the garbage collector's passes until the end: an aggregator and a dashboard
    that end in this process would give it back, and each that starts would walk half a million objects of tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "freeze", lambda: None)
        patch.setattr(gc, "unfreeze", lambda: None)
        yield


@pytest.fixture
def thawed_heap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A heap of which nothing is frozen, and what really freezes it, for one test."""
    monkeypatch.setattr(gc, "freeze", FREEZE)
    monkeypatch.setattr(gc, "unfreeze", UNFREEZE)
    UNFREEZE()
    yield
    UNFREEZE()
    gc.collect()
    FREEZE()


@pytest.fixture(scope="session", autouse=True)
def parsing_without_finalizers() -> Iterator[None]:
    """Keep the garbage collector out of `ast.parse`: a finalizer that logs a traceback parses too, and CPython 3.11
    then ends the outer call with "AST constructor recursion depth mismatch"."""
    parse = ast.parse

    def alone(*arguments: Any, **options: Any) -> Any:
        enabled = gc.isenabled()
        gc.disable()
        try:
            return parse(*arguments, **options)
        finally:
            if enabled:
                gc.enable()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ast, "parse", alone)
        yield


@pytest.fixture(autouse=True)
def recent_clock() -> None:
    """Nodes on a real bus whose clock is right, however long ago their module was read."""
    if (nodes := sys.modules.get("tests.aggregator.node")) is not None:
        nodes.begin_clock()


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """The usual umask in each test: `kilowatch`, called in this process, sets its own, also in a fixture of a
    module, which is set up before this one."""
    os.umask(0o022)
    yield
    os.umask(0o022)


@pytest.fixture(scope="session")
def captures() -> Path:
    """The folder of real recordings; it lies beside the project, where it is lent at all."""
    folder = ROOT.parent / "shared" / "data" / "captures"
    if not folder.is_dir():
        pytest.skip("no real recordings here: ../shared/data/captures is not there")
    return folder


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    """A running mosquitto."""
    if shutil.which("mosquitto") is None and not Path("/usr/sbin/mosquitto").exists():
        pytest.skip("mosquitto is not installed: apt-get install mosquitto")
    broker = Mosquitto(tmp_path)
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def embedded_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Embedded]:
    """A running embedded broker, whose password programs of this test find by themselves."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    broker = Embedded(tmp_path)
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture(params=["mosquitto", "embedded_broker"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Both brokers, one after the other."""
    found: Broker = request.getfixturevalue(request.param)
    return found
