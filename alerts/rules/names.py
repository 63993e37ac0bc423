"""Names that a rule may read: metrics of the catalogue, and quantities of the snapshots."""

from __future__ import annotations

from functools import cache

from api.alerts import Subject
from api.power import SnapshotKind
from power.snapshot.quantities import QUANTITY_BY_NAME
from power.snapshot.snapshot import Quantity
from present.units import value_text
from telemetry.catalogue import BY_NAME
from telemetry.metric import Metric, Unit

Word = Metric | Quantity
"""Meaning of a name; both have unit, help, kind and states."""

MONITOR_QUANTITIES = tuple(
    Quantity(name=f"monitor_{name}", unit=Unit.FLAG, help=text, snapshot_kind=SnapshotKind.MONITOR)
    for name, text in {
        "bus_lost": "1 while the aggregator has no connection to the broker.",
        "broker_lost": "1 while a broker of the list can't be reached.",
        "cluster_lost": "1 while this member can't agree with the others: NATS does not answer.",
        "member_lost": "1 while a member of the cluster of aggregators is silent.",
        "peers_unheard": "1 while GPUs of a job can't be compared with those that other members have.",
        "site_unheld": "1 while no aggregator judges circuits, budgets and UPSs.",
        "groups_unheld": "1 while shard groups have no member that receives them.",
        "scheduler_failing": "1 while the scheduler can't be asked for its jobs.",
        "rules_failing": "1 while the rules can't be evaluated.",
        "rule_set_aside": "1 while a rule can't be evaluated.",
        "node_set_aside": "1 while a node can't be evaluated or stored.",
        "page_set_aside": "1 while a page, or what one shows of a circuit, GPU or job, can't be made.",
        "node_missing": "1 while a node that is expected is not there.",
        "node_differs": "1 while a node is another one than declared, or than its like.",
        "node_returned": "1 while a node that was retired or renamed sends again.",
        "alerting_impaired": "1 while an alert can't be worded, grouped or sent as usual.",
        "loop_failing": "1 while a loop of the aggregator fails.",
        "circuits_failing": "1 while the circuits can't be computed.",
        "circuit_set_aside": "1 while a circuit, meter, budget or UPS can't be computed.",
        "store_failing": "1 while the store can't be written.",
        "messages_refused": "1 while messages of a node are refused again and again.",
        "strangers_refused": "1 while messages are refused under names that are no nodes of ours.",
        "files_lost": "1 while sealed files that were removed or damaged are missing.",
        "file_damaged": "1 while a file of the data folder that could not be used waits for somebody to look.",
        "shared_storage_failing": "1 while the shared storage can't be used, or has files that can't be read.",
        "influxdb_failing": "1 while InfluxDB accepts nothing.",
        "overloaded": "1 while something is shed because more comes than can be carried.",
        "delivery_failing": "1 while a channel delivers nothing.",
        "journal_unwritable": "1 while the journal of alerts can't be written.",
        "task_restarted": "1 while a task of the aggregator that ended has not worked for a while.",
        "task_failing": "1 while a task of the aggregator ends again and again.",
        "task_blocked": "1 while a task of the aggregator makes no progress.",
        "journal_lost": "1 for a day after the journal of alerts was found broken.",
    }.items()
)
"""Columns of the monitor's snapshot, for the rules of `monitor.toml`."""

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
