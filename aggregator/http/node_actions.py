"""Actions on nodes: removal of one that is gone for good, and the record of its recovery."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable

from aiohttp import web

from aggregator.access.tokens import AccessScope
from aggregator.http.auth import signed
from aggregator.http.errors import RequestError, bad, unknown
from aggregator.http.operation import Operation
from aggregator.http.parameters import BODY_FAULTS, NODE, query, read_body
from aggregator.http.reply import VIEW, send_json
from aggregator.view import AggregatorView
from api.fleet import ForgetReply, ForgetRequest
from api.node_register import RegisterChange, RegisterReply, RegisterRequest, RenameRequest
from api.recovery import RecoveryStepReply, RecoveryStepRequest
from telemetry.devices import Event
from telemetry.errors import BusError, ConfigError, NodeError
from telemetry.wire.border import WHOLE_END, clean

log = logging.getLogger(__name__)
MOST_OUTPUT = 8192
"""Characters of a step's output that are stored: its end."""
_ID = re.compile(r"recovery-[0-9a-f]{16}")
"""Of a kind of its own: a record with the id of a node's next event would keep that from being evaluated."""
_STEP = re.compile(r"[a-z][a-z_]{0,31}")


async def forget(request: web.Request) -> web.Response:
    """Remove a node; its history stays."""
    query(request)
    view, name = request.app[VIEW], request.match_info["node"]
    asked = await read_body(request, ForgetRequest)
    try:
        known = await view.forget(name)
    except ConfigError as error:
        raise bad("node", error.problem, error.hint) from error
    except NodeError as error:
        raise RequestError(409, "node", *_parts(error)) from error
    except BusError as error:
        raise RequestError(503, "bus", *_parts(error)) from error
    log.info("node=%s forgotten by %s: %s", name, signed(request, asked.who), asked.why[:200] or "-")
    return await send_json(request, ForgetReply(view.wall(), name, known))


async def register(request: web.Request) -> web.Response:
    """Answer with all nodes that are declared or heard."""
    query(request)
    view = request.app[VIEW]
    body = view.register.reply(view.fleet, view.now(), view.wall())
    return await send_json(request, body, values=20 * len(body.nodes))


async def expect(request: web.Request) -> web.Response:
    """Declare that a node belongs to the cluster."""
    query(request)
    view, name = request.app[VIEW], request.match_info["node"]
    asked = await read_body(request, RegisterRequest)
    who = signed(request, asked.who)
    await _declared(view.register.expect(name, who, asked.why, view.wall()))
    return await _changed(request, name, "expected", asked.why)


async def retire(request: web.Request) -> web.Response:
    """Remove a node, and declare that it has left; its history stays."""
    query(request)
    view, name = request.app[VIEW], request.match_info["node"]
    asked = await read_body(request, RegisterRequest)
    who = signed(request, asked.who)
    await _declared(view.forget(name))
    await _declared(view.register.retire(name, who, asked.why, view.wall()))
    return await _changed(request, name, "retired", asked.why)


async def rename(request: web.Request) -> web.Response:
    """Declare that a node has another name from its next start on."""
    query(request)
    view, name = request.app[VIEW], request.match_info["node"]
    asked = await read_body(request, RenameRequest)
    who = signed(request, asked.who)
    await _declared(view.register.rename(name, asked.to, view.fleet, who, asked.why, view.wall()))
    return await _changed(request, asked.to, f"renamed from {name}", asked.why)


async def _declared(change: Awaitable[object]) -> None:
    """Carry out a change of the register. Raises `RequestError`."""
    try:
        await change
    except ConfigError as error:
        raise bad(error.where, error.problem, error.hint) from error
    except NodeError as error:
        raise RequestError(409, "node", *_parts(error)) from error
    except BusError as error:
        raise RequestError(503, "bus", *_parts(error)) from error


async def _changed(request: web.Request, name: str, what: str, why: str) -> web.Response:
    view = request.app[VIEW]
    log.info("node=%s %s by %s: %s", name, what, signed(request, ""), clean(why[:200]) or "-")
    row = view.register.row(name, view.fleet, view.now())
    return await send_json(request, RegisterChange(view.wall(), row))


async def record_recovery(request: web.Request) -> web.Response:
    """Store a step of a recovery as an event of its node."""
    query(request)
    view, name = request.app[VIEW], request.match_info["node"]
    asked = await read_body(request, RecoveryStepRequest)
    node = view.fleet.nodes.get(name)
    if node is None:
        raise unknown("node", name, view.fleet.nodes)
    if not _ID.fullmatch(asked.id):
        raise bad("body.id", "it is no id of a record", "Write recovery- and 16 hex digits.")
    if not _STEP.fullmatch(asked.step):
        raise bad("body.step", "it is no step", "Write drain, stop, reset, check, uncordon ...")
    known = {gpu.uuid for gpu in node.inventory.gpus}
    if asked.gpu is not None and asked.gpu not in known:
        raise bad("body.gpu", f"{name} has no GPU {asked.gpu[:64]!r}", "Write a UUID, or leave it out.")
    for field in ("started", "ended", "exit_code"):
        number = getattr(asked, field)
        if number is not None and not -(1 << 31) <= number < WHOLE_END:
            raise bad(f"body.{field}", f"{str(number)[:32]} is out of range", "")
    who = signed(request, asked.who)
    event = Event(
        id=asked.id,
        node=name,
        at=view.wall(),
        kind="recovery",
        gpu=asked.gpu,
        message=f"{asked.step} {asked.outcome} by {who}",
        data={
            "step": asked.step,
            "outcome": asked.outcome.value,
            "who": who,
            "rules": [clean(rule[:128]) for rule in asked.rules[:16]],
            "command": [clean(each[:512]) for each in asked.command[:32]],
            "started": asked.started,
            "ended": asked.ended,
            "exit_code": asked.exit_code,
            "late": asked.late,
            "output": "\n".join(map(clean, asked.output[-MOST_OUTPUT:].splitlines())),
        },
    )
    known_event = any(each.id == event.id and each.node == name for each in view.recent_events())
    try:
        view.record_event(event)
    except NodeError as error:
        raise RequestError(503, "node", *_parts(error)) from error
    if not known_event:
        _annotate(view, event)
    log.info("node=%s recovery: %s", name, event.message)
    return await send_json(request, RecoveryStepReply(view.wall(), event))


def _annotate(view: AggregatorView, event: Event) -> None:
    """Add a step of a recovery to the timeline of each open incident that it is for."""
    manager = view.pipeline.manager
    for incident in manager.incidents():
        if event.data["late"] and incident.began > event.data["ended"]:
            continue  # an older fault was the reason of the step
        theirs = {one.gpu for one in incident.alerts if one.node == event.node}
        if not theirs or (event.gpu is not None and not theirs & {None, event.gpu}):
            continue
        view.pipeline.note_on(
            incident.key,
            "recovery",
            who=event.data["who"],
            why=f"{event.data['step']} {event.data['outcome']}",
            now=view.now(),
            wall=view.wall(),
        )


def _parts(error: Exception) -> tuple[str, str]:
    """Return problem and cure of an error's text."""
    problem, _, cure = str(error).partition(". ")
    return problem, cure


OPERATIONS = (
    Operation(
        "/api/v1/nodes/{node}/forget",
        forget,
        "forgetNode",
        "Remove a node that is gone for good from the fleet, the alerts and the broker; its history "
        "stays. 409 for one that is online.",
        ForgetReply,
        (NODE,),
        (*BODY_FAULTS, 409, 503),
        body=ForgetRequest,
        body_required=False,
        method="post",
        scope=AccessScope.ADMIN,
    ),
    Operation(
        "/api/v1/register",
        register,
        "register",
        "All nodes that are expected, retired, renamed or heard, with their releases.",
        RegisterReply,
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/nodes/{node}/expect",
        expect,
        "expectNode",
        "Declare that a node belongs to the cluster: while it is not there, that is an alert. A retired one is "
        "taken back.",
        RegisterChange,
        (NODE,),
        (*BODY_FAULTS, 409),
        body=RegisterRequest,
        body_required=False,
        method="post",
        scope=AccessScope.ADMIN,
    ),
    Operation(
        "/api/v1/nodes/{node}/retire",
        retire,
        "retireNode",
        "Remove a node as `forget` does, and declare that it has left: it is not expected any more, and it is an "
        "alert when it sends again. 409 for one that is online.",
        RegisterChange,
        (NODE,),
        (*BODY_FAULTS, 409, 503),
        body=RegisterRequest,
        body_required=False,
        method="post",
        scope=AccessScope.ADMIN,
    ),
    Operation(
        "/api/v1/nodes/{node}/rename",
        rename,
        "renameNode",
        "Declare that a node has another name from its next start on. Its history is found under both; the "
        "old name leaves the fleet when the new one is heard.",
        RegisterChange,
        (NODE,),
        (*BODY_FAULTS, 409),
        body=RenameRequest,
        method="post",
        scope=AccessScope.ADMIN,
    ),
    Operation(
        "/api/v1/nodes/{node}/recovery",
        record_recovery,
        "recordRecovery",
        "Record a step of a node's recovery, which somebody carried out elsewhere: it is an event of kind "
        "`recovery`. Nothing is run.",
        RecoveryStepReply,
        (NODE,),
        (*BODY_FAULTS, 404, 503),
        body=RecoveryStepRequest,
        method="post",
        scope=AccessScope.ACK,
    ),
)
