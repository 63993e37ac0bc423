"""Rules, manager, journal and a sender in a process that is killed, and the one that kills it.

    python -m tests.alerts.crash_victim FOLDER KILLS

The scenario is a function of the second, so every new start goes on where the journal ends. What is
sent goes into a file, and onto the disk, before the journal hears of it; `done` follows it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import tomllib
from pathlib import Path

import msgspec
import numpy as np

from alerts.engine.engine import RuleEngine
from alerts.incidents.manager import IncidentManager
from alerts.incidents.policy import NotificationTimings, policies_of
from alerts.journal.journal import Journal
from alerts.notice import Notice
from alerts.rules.rule import Rule
from api.alerts import Action, AlertState, DeliveryOutcome
from telemetry.devices import Gpu
from telemetry.fleet import Fleet
from telemetry.gap import GAP, Gap
from telemetry.metric import Table
from telemetry.wire.inventory import Inventory
from tests.alerts.deliveries import NOON, SECOND

SECONDS = 160
NODES = 4
GPUS = 3
RULES = """
[[rule]]
name = "hot"
when = { type = "above", metric = "gpu_temperature_celsius", level = 80 }
hold = 2
keep = 3
severity = "page"
remediation = "reset"
summary = "{where} is hot"
description = "-"
runbook = "-"

[[rule]]
name = "driver_down"
table = "node"
when = { type = "below", metric = "node_driver_up", level = 0.5 }
severity = "page"
remediation = "reset"
summary = "the driver of {where} is down"
description = "-"
runbook = "-"
inhibits = [{ rule = "hot", within = "node", why = "No driver, no reading." }]
"""
DEFAULT_TIMINGS = NotificationTimings(settle=2.0, settle_recurring=2.0, grace=3.0)


def is_hot(node: int, gpu: int, second: int) -> bool:
    """Each GPU is hot twice, at times of its own."""
    begins = 5 + 7 * node + 3 * gpu
    return begins <= second < begins + 30 or begins + 60 <= second < begins + 85


def is_down(node: int, second: int) -> bool:
    """The driver of one node is down while its GPUs are hot."""
    return node == 1 and 70 <= second < 100


def rules() -> tuple[Rule, ...]:
    """The rules of the scenario."""
    return tuple(msgspec.convert(raw, Rule) for raw in tomllib.loads(RULES)["rule"])


class Cluster:
    """A few nodes whose readings follow from the second."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        for node in range(NODES):
            gpus = tuple(Gpu(uuid=f"GPU-{node}{n}", index=n, name="H100") for n in range(GPUS))
            self.fleet.place(Inventory(node=f"n{node}", gpus=gpus))

    def read(self, second: int, now: float) -> None:
        """Store a frame of every node."""
        for number, matrix in enumerate(self.fleet.matrices):
            names, table = matrix.block.names, matrix.block.table
            split = len(matrix.block.gauges)
            for node in range(NODES):
                known: list[dict[str, float]] = []
                if table is Table.GPU:
                    hot = [is_hot(node, gpu, second) for gpu in range(GPUS)]
                    known = [{"gpu_temperature_celsius": 90.0 if one else 60.0} for one in hot]
                elif table is Table.NODE:
                    known = [{"node_driver_up": 0.0 if is_down(node, second) else 1.0}]
                if known:
                    rows = np.array([[one.get(name, GAP[Gap.NOT_SUPPORTED]) for name in names] for one in known])
                    at = self.fleet.nodes[f"n{node}"].rows[table]
                    gauges = rows[:, :split].astype(np.float32)
                    self.fleet.store(number, at, gauges, rows[:, split:], now)
        for placed in self.fleet.nodes.values():
            placed.seen = now


def live(folder: Path) -> None:
    """Go on with the scenario until it ends."""
    journal = Journal.open(folder / "alerts.db", NOON)
    clock = journal.memory.clock
    second = 0 if clock is None else (clock.wall - NOON) // SECOND
    base = random.random() * 1000
    cluster, engine = Cluster(), RuleEngine(rules())
    engine.restore(journal.alert_records, base, NOON + second * SECOND)
    manager = IncidentManager(
        policies_of(rules()), journal.memory, timings=DEFAULT_TIMINGS, now=base, wall_ns=NOON + second * SECOND
    )
    firing = [one.alert for one in journal.alert_records if one.alert.state is AlertState.FIRING]
    step = manager.reconcile(firing, base, NOON + second * SECOND)
    turns = -1
    with (folder / "sent").open("a") as sent:
        for tick in range(second + 1, SECONDS):
            now, wall = base + tick - second, NOON + tick * SECOND
            cluster.read(tick, now)
            changes = engine.evaluate(cluster.fleet, now, wall)
            step = step.then(manager.receive(changes, now, wall))
            if step or engine.turns != turns:
                turns = engine.turns
                assert journal.commit(step, route, engine.snapshot(wall))
                step = type(step)()
            while waiting := journal.due(wall, 100, "pager"):
                for one in waiting:
                    tell(sent, f"send {one.notice.id} {one.notice.action} {one.notice.incident.key}")
                    assert journal.settle([one.id], DeliveryOutcome.DELIVERED)
                    tell(sent, f"done {one.notice.id}")
    journal.close()


def route(notice: Notice, wall_ns: int, told: object) -> dict[str, int]:
    """Route all but updates to the pager."""
    return {} if notice.action is Action.UPDATE else {"pager": wall_ns}


def tell(sent: object, line: str) -> None:
    """Send something, for good."""
    sent.write(line + "\n")  # type: ignore[attr-defined]  # a text file
    sent.flush()  # type: ignore[attr-defined]  # as above
    os.fsync(sent.fileno())  # type: ignore[attr-defined]  # as above


def kill_and_restart(folder: Path, kills: int, dice: random.Random) -> int:
    """Live through the scenario, killed at random moments; return how often it was."""
    done = 0
    while True:
        child = os.fork()
        if child == 0:
            try:
                live(folder)
            except BaseException:  # noqa: BLE001 - shown, and then this process is over
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        if done < kills:
            time.sleep(dice.uniform(0.004, 0.09))  # the moment is what is drawn
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            done += 1
        else:
            assert os.waitstatus_to_exitcode(status) == 0
            return done


def main() -> None:
    """Play it once without a kill, then again and again until there were enough."""
    folder, kills = Path(sys.argv[1]), int(sys.argv[2])
    dice = random.Random(7)
    (folder / "whole").mkdir()
    kill_and_restart(folder / "whole", 0, dice)
    done = round_ = 0
    while done < kills:
        round_ += 1
        (folder / f"killed-{round_}").mkdir()
        done += kill_and_restart(folder / f"killed-{round_}", kills - done, dice)
    sys.stdout.write(f"{done}\n")


if __name__ == "__main__":
    main()
