"""One injected fault in the scene: what it cost, and whether kilowatch said so."""

from __future__ import annotations

import types
from dataclasses import dataclass, field

from api.alerts import AlertState
from tests.faults.injection import Condition, Injection, mentioned
from tests.faults.injection_scene import CHANNEL, CIRCUIT, HONEST, METER, RULE, VICTIM, Scene

VICTIMS = (VICTIM, RULE, CIRCUIT, CHANNEL, METER, "victim-budget", "victim-ups")
PACKAGES = ("aggregator.service", "aggregator.impairments", "aggregator.stats", "aggregator.alerting", "aggregator.electrical",
            "aggregator.ingest", "aggregator.load", "aggregator.mqtt", "aggregator.store", "alerts", "power", "telemetry")  # fmt: skip
SECONDS = 5
"""Virtual seconds within which an alert must fire."""


@dataclass
class FaultResult:
    """What one injection did."""

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
        return (not self.raised or (self.named and self.alerted)) and self.paged and self.stored and self.recovered  # fmt: skip

    def __str__(self) -> str:
        wrong = [name for name in ("named", "alerted", "paged", "stored", "recovered") if not getattr(self, name)]  # fmt: skip
        return f"{self.name}: raised {self.raised} times, not {', '.join(wrong)}; {sorted(self.parts)}; left {self.left}"


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
) -> FaultResult:  # fmt: skip
    """Let a function raise, once or for five seconds, while everything happens to the victim and one
    fault to an honest node."""
    result = FaultResult(name)
    injection = Injection(name, function, condition)
    injection.most = 1 if once else None
    nodes = len(scene.names) - 1
    honest, gpu = f"{HONEST}-{number % nodes}", number // nodes % 2
    where = f"honest page of {honest} GPU {gpu}"
    before = len(scene.pager.calls)
    with injection.armed():
        scene.trouble(number)
        scene.xid(honest, gpu)
        for _ in range(SECONDS):
            await scene.second()
            _look(scene, injection, result)
    result.raised = injection.raised
    bodies = [str(call.body) for call in scene.pager.calls[before:]]
    plain = "Its text can't be made"
    result.paged = any(where in one or ("honest_rule on" in one and plain in one) for one in bodies)
    scene.calm(number)
    for waited in range(40):
        await scene.second()
        _look(scene, injection, result, late=once)
        scene.forget_refusals()
        told = result.alerted or not result.named or waited >= SECONDS
        if told and not _left(scene) and await _all_stored(scene):
            break
    result.stored = await _all_stored(scene)
    result.left = _left(scene)
    result.recovered = not result.left
    result.alerted |= any(injection.marker in str(call.body) for call in scene.pager.calls[before:])
    if once:  # over before its alert is due
        result.alerted |= result.named
    return result


def _left(scene: Scene) -> list[str]:
    """Return what is still impaired; a task that was started again counts as healthy after half a
    minute only."""
    return [
        f"{one.rule} {one.part}"
        for one in scene.aggregator.impairments.current()
        if not one.rule.startswith("task_")
        and one.until is None
        and not one.part.endswith("/messages")  # until the next message, after its own pause
    ]


def _look(scene: Scene, injection: Injection, result: FaultResult, *, late: bool = False) -> None:
    found = [
        one for one in scene.aggregator.impairments.current() if injection.marker in one.reason
    ]
    result.parts |= {f"{one.rule} {one.part}{' whole' if one.whole else ''}" for one in found}
    result.named |= bool(found)
    try:
        alerts = scene.aggregator.alerts()
    except Exception:  # noqa: BLE001 - the injected one
        return
    keys = {f"{one.rule}/{one.part}" for one in found}
    result.alerted |= any(one.key in keys and one.state is AlertState.FIRING for one in alerts)
    if not late:
        result.alerted |= any(
            one.state is AlertState.FIRING and injection.marker in one.summary + one.description
            for one in alerts
        )


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
