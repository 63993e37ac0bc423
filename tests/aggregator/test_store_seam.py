"""The seam of the store: typed from end to end, and no store is known by its name beyond it."""

from __future__ import annotations

import inspect
import re
import typing
from pathlib import Path

import pytest

from aggregator.store import executor, protocol
from aggregator.store.embedded import EmbeddedStore
from aggregator.store.executor import StoreExecutor
from aggregator.store.protocol import Store
from tests.aggregator.fake_view import MemoryStore
from tests.kit.packages import PACKAGES

NAME = re.compile(r"influx(?!ql)", re.IGNORECASE)
ROOT = Path(__file__).resolve().parents[2]
METHODS = [name for name in vars(Store) if not name.startswith("_")]
ANSWERED = ("known", "accounted", "inventories", "history", "past", "events", "size", "status")
KNOW_INFLUXDB = {
    "aggregator/config.py": "the setting `kind`",
    "aggregator/settings/influx.py": "the settings of the server",
    "aggregator/assembly/store_choice.py": "opens the store that is configured, and inspects its server",
    "kilowatch/prometheus/self_alerts.py": "the same alert over the store's own metrics",
    "kilowatch/cli/influx.py": "the command `kilowatch influx`",
    "kilowatch/stack/start_line.py": "says at the start where the frames are stored",
    "kilowatch/__main__.py": "the same, in the table of commands",
    "aggregator/folder/kinds.py": "which files of the data folder are its spool, and what the loss of each costs",
}
"""Files outside `aggregator/influx` that may name InfluxDB, with the reason."""


def signature(method: object, module: object) -> tuple[list[tuple[str, object]], object]:
    """Return names and types of a method's parameters, and the type of its answer."""
    assert callable(method)
    hints = typing.get_type_hints(method, vars(module))
    found = inspect.signature(method)
    return [(name, hints[name]) for name in found.parameters if name != "self"], hints["return"]


@pytest.mark.parametrize("name", ANSWERED)
def test_the_executor_answers_with_the_types_of_the_store(name: str) -> None:
    """A caller gets what the store answers, and neither `Any` nor `object`."""
    asked, answer = signature(getattr(StoreExecutor, name), executor)
    assert (asked, answer) == signature(getattr(Store, name), protocol)
    assert answer not in {typing.Any, object}
    assert inspect.iscoroutinefunction(getattr(StoreExecutor, name)) is (name != "status")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("store", [EmbeddedStore, MemoryStore])
def test_every_store_has_every_method(store: type, name: str) -> None:
    """With the same parameters, so that none is asked for by `getattr`."""
    ours, theirs = inspect.signature(getattr(store, name)), inspect.signature(getattr(Store, name))
    assert list(ours.parameters) == list(theirs.parameters)


def test_influxdb_is_known_by_name_in_few_files() -> None:
    """Another store is a folder, a kind and a branch in `open_store`."""
    found = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if NAME.search(path.read_text(encoding="utf-8")) or NAME.search(path.name)
    }
    beyond = {path for path in found if not path.startswith("aggregator/influx/")}
    assert beyond == set(KNOW_INFLUXDB)
