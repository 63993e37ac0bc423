"""An injected fault in the scene: what it cost, and whether kilowatch said so."""

from __future__ import annotations

import time
import types
from dataclasses import dataclass, field

from api.alerts import AlertState
from tests.faults.injection import Condition, Injection, mentioned
from tests.faults.injection_scene import CHANNEL, CIRCUIT, HONEST, METER, NODES, PROBE, RULE, VICTIM, Scene

VICTIMS = (VICTIM, RULE, CIRCUIT, CHANNEL, METER, "victim-budget", "victim-ups")
PACKAGES = ("aggregator.service", "aggregator.impairments", "aggregator.stats", "aggregator.alerting", "aggregator.electrical",
            "aggregator.ingest", "aggregator.jobs", "aggregator.load", "aggregator.mqtt", "aggregator.store", "alerts", "power", "present", "telemetry")  # fmt: skip
SECONDS = 5
"""Virtual seconds within which an alert must fire."""


@dataclass
class FaultResult:
    """Effects of an injection."""

    name: str
    raised: int = 0
    named: bool = False
    """Whether the impairments named it."""
    alerted: bool = False
    paged: bool = False
    """Whether another fault, on an honest node, was paged meanwhile."""
    stored: bool = False
    """Whether all frames of the honest nodes are in the store."""
    alive: bool = True
    parts: set[str] = field(default_factory=set)
    recovered: bool = False
    left: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether it cost no more than it may, and was said."""
        return (not self.raised or (self.named and self.alerted)) and self.paged and self.stored and self.recovered

    def __str__(self) -> str:
        wrong = [name for name in ("named", "alerted", "paged", "stored", "recovered") if not getattr(self, name)]
        return (
            f"{self.name}: raised {self.raised} times, not {', '.join(wrong)}; {sorted(self.parts)}; left {self.left}"
        )


def of_victim(frame: types.FrameType) -> bool:
    """Whether a call concerns what the injection may cost."""
    return mentioned(frame, VICTIMS, _of_others)


def always(_: types.FrameType) -> bool:
    """Every call raises."""
    return True


def _of_others(text: str) -> bool:
    return HONEST in text or text.startswith("honest")


async def inject(
    scene: Scene, name: str, function: types.FunctionType, condition: Condition, number: int, *, once: bool
) -> FaultResult:
    """Make a function raise, once or until it is said (for five seconds at most), while everything
    happens to the victim and one fault to an honest node."""
    result = FaultResult(name)
    injection = Injection(name, function, condition)
    injection.most = 1 if once else None
    honest, gpu = f"{HONEST}-{number % NODES}", number // NODES % 2
    where = f"honest page of {honest} GPU {gpu}"
    before, began = len(scene.pager.calls), time.time_ns()
    with injection.armed():
        scene.trouble(number)
        scene.xid(honest, gpu)
        first = None
        for second in range(2 * SECONDS):
            await scene.second()
            _look(scene, injection, result, began)
            result.alerted |= _told(scene, before, injection.marker)
            if second < SECONDS:
                result.paged |= _paged(scene, before, where)
            if first is None and injection.raised:
                first = second
            said = first is not None and result.named and result.alerted
            if second and said and result.paged:
                break
            if second >= SECONDS - 1 and (said or first is None or second - first >= SECONDS):
                break
    result.raised = injection.raised
    if once:  # over before its alert is due
        result.alerted |= result.named
    scene.calm(number)
    await scene.forget(number)
    for waited in range(60):
        await scene.second()
        scene.forget_refusals()
        if once:  # it may have been met in the last second
            _look(scene, injection, result, began)
            result.alerted |= result.named
        result.left = _left(scene)
        if not result.left and await _all_stored(scene):
            break
        if waited % 4 == 3:
            scene.xid(PROBE, waited // 4 % 2)
    result.stored = await _all_stored(scene)
    result.recovered = not result.left
    return result


def _told(scene: Scene, before: int, marker: str) -> bool:
    return any(marker in str(call.body) for call in scene.pager.calls[before:])


def _paged(scene: Scene, before: int, where: str) -> bool:
    plain = "Its text can't be made"
    bodies = [str(call.body) for call in scene.pager.calls[before:]]
    return any(where in one or ("honest_rule on" in one and plain in one) for one in bodies)


def _left(scene: Scene) -> list[str]:
    """Return what is still impaired; a task that was started again counts as healthy after half a
    minute only."""
    current = scene.aggregator.impairments.current()
    return [f"{one.rule} {one.part}" for one in current if not one.rule.startswith("task_") and one.until is None] + [
        f"pause of {name}" for name in scene.pauses()
    ]


def _look(scene: Scene, injection: Injection, result: FaultResult, began: int) -> None:
    """Note whether the injection is named, and whether an alert of it began after it or names it."""
    found = [one for one in scene.aggregator.impairments.current() if injection.marker in one.reason]
    result.parts |= {f"{one.rule} {one.part}{' whole' if one.whole else ''}" for one in found}
    result.named |= bool(found)
    try:
        alerts = scene.aggregator.alerts()
    except Exception:  # noqa: BLE001 - the injected one
        return
    keys = {f"{one.rule}/{one.part}" for one in found}
    for one in alerts:
        if one.state is AlertState.FIRING:
            new = one.key in keys and one.changed >= began
            result.alerted |= new or injection.marker in one.summary + one.description


async def _all_stored(scene: Scene) -> bool:
    accounted = await scene.aggregator.store.accounted()
    for name in scene.names:
        if name == VICTIM:
            continue
        ingest = scene.aggregator._ingest
        account = None if ingest is None else ingest.ledger.find(name, 1)
        if account is None or account.missing:
            return False
        if len(accounted.get((name, 1), ())) < scene.seq + 1 - 2 - len(scene.skipped):
            return False
    return True
