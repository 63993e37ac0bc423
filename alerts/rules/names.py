"""Names that a rule may read: metrics of the catalogue, and quantities of the snapshots."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from api.alerts import Subject
from api.power import SnapshotKind
from power.snapshot.quantities import QUANTITY_BY_NAME
from power.snapshot.snapshot import Quantity
from present.units import value_text
from telemetry.catalogue import BY_NAME
from telemetry.metric import Metric, Unit
from telemetry.text.settings import read_toml

Word = Metric | Quantity
"""Meaning of a name; both have unit, help, kind and states."""

MONITOR_QUANTITIES = tuple(
    Quantity(
        name=f"monitor_{rule['name']}",
        unit=Unit.FLAG,
        help=f"1 while a part of the monitor reports {rule['name']}.",
        snapshot_kind=SnapshotKind.MONITOR,
    )
    for rule in read_toml(Path(__file__).with_name("monitor.toml"))["rule"]
)
"""Columns of the monitor's snapshot: one for each rule of `monitor.toml`, 1 while a part reports it."""

WORDS: dict[str, Word] = {**BY_NAME, **QUANTITY_BY_NAME, **{quantity.name: quantity for quantity in MONITOR_QUANTITIES}}
"""By name. The prefixes keep them apart: `gpu_`, `link_`, `node_`, `port_`, `instance_`, and one for each snapshot."""


@cache
def home(name: str) -> Subject:
    """Return the subject that a name is a reading of. Raises `KeyError` for an unknown name."""
    word = WORDS[name]
    return Subject(word.snapshot_kind if isinstance(word, Quantity) else word.table)


_ABOVE = {
    Subject.GPU: (Subject.GPU, Subject.NODE),
    Subject.LINK: (Subject.LINK, Subject.GPU, Subject.NODE),
    Subject.PORT: (Subject.PORT, Subject.NODE),
    Subject.INSTANCE: (Subject.INSTANCE, Subject.NODE),
}


def in_reach(subject: Subject) -> tuple[Subject, ...]:
    """Return the subjects whose names a rule about `subject` may use: its device and its holders."""
    return _ABOVE.get(subject, (subject,))


def format_value(name: str, value: float) -> str:
    """Return a value of a name with its unit: `91 °C`, `7.2 %`, `gpu reset`, `never`."""
    word = WORDS[name]
    return value_text(word.unit, word.states, value)
