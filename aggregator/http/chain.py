"""`/api/v1/power/chain`: the power chain from sources to GPUs, of the branch that the web pages draw, where they have room for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from aiohttp import web

from aggregator.access.tokens import AccessScope
from aggregator.http.circuits import circuits_now, supplies_now
from aggregator.http.errors import unknown
from aggregator.http.marks import marks_of, status_of
from aggregator.http.operation import Operation, Parameter
from aggregator.http.parameters import query
from aggregator.http.reply import VIEW, send_json
from aggregator.view import AggregatorView
from api.chain import ChainKind, ChainLoad, ChainPiece, ChainReply
from api.power import LoadState, RowState
from power.site.layout import SiteLayout
from power.snapshot.documents import plain
from power.snapshot.power_chain import Branch, branch, circuit_pieces, node_state
from present.circuit.figures import by_urgency
from telemetry.metric import Table


async def chain(request: web.Request) -> web.Response:
    """Answer with the chain, or with the branch of a circuit."""
    view, around = request.app[VIEW], query(request, "circuit").get("circuit", "")
    reply = await chain_reply(view, around)
    return await send_json(request, reply, values=20 * len(reply.pieces))


async def chain_reply(view: AggregatorView, around: str = "") -> ChainReply:
    """Return the chain; `around`: the circuit whose branch is wanted. Raises a 404 where there is no such circuit."""
    layout = view.electrical.site.layout
    if around and (layout is None or around not in layout.circuits):
        raise unknown("circuit", around, () if layout is None else layout.circuits)
    circuits = await circuits_now(view, beside(view.electrical.site.layout, around) if around else None)
    at = view.electrical.latest_at
    if layout is None or not circuits:
        return ChainReply(cluster=view.cluster, at=at, around=around)
    status = status_of(view.alerts())
    urgent = by_urgency(circuits, lambda name: status.get(name, 0))
    found = branch(urgent, around)
    severity = {name: ("", "ticket", "page")[worst] for name, worst in status.items()}
    pieces = await asyncio.to_thread(lambda: list(circuit_pieces(found, urgent, layout, severity)))
    nodes = {row.id: row for row in await supplies_now(view, found.nodes)}
    pieces += _devices(view, found, nodes)
    return ChainReply(
        cluster=view.cluster, at=at, around=around, pieces=pieces, folded=found.folded, left_out=found.left_out
    )


def beside(layout: SiteLayout | None, name: str) -> set[str]:
    """Return the circuits of a circuit's branch: those below it, the others of their nodes, and all that feed them."""
    if layout is None:
        return set()
    below = {name, *layout.below(name)}
    nodes = {cord.machine for cord in layout.cords if cord.circuit in below}
    found: set[str] = set()
    open_ = [*below, *(cord.circuit for cord in layout.cords if cord.machine in nodes)]
    while open_:
        one = open_.pop()
        if one not in found and one in layout.circuits:
            found.add(one)
            open_ += [layout.circuits[one].parent or one, *layout.circuits[one].inputs]
    return found


def _devices(view: AggregatorView, found: Branch, drawn: Mapping[str, RowState]) -> Iterator[ChainPiece]:
    """Yield the nodes of a branch, each with its GPUs."""
    now, fleet = view.now(), view.fleet
    node_marks, gpu_marks = marks_of(view.alerts())
    power, limits = (fleet.column(name, now) for name in ("gpu_power_watts", "gpu_power_limit_watts"))
    for name in found.nodes:
        feeds = [one for one in found.leaves if name in one.nodes]
        states = [found.states[one.id] for one in feeds]
        row = drawn.get(name)
        known = None if row is None or row.load_state is LoadState.UNKNOWN else row.load_state
        watts = None if row is None or known is None else row.quantities.get("wall_watts")
        its = ChainLoad.UNKNOWN if known is None or watts is None else ChainLoad(known)
        yield ChainPiece(
            id=f"node/{name}",
            kind=ChainKind.NODE,
            name=name,
            label=name,
            parents=[f"circuit/{one.id}" for one in feeds],
            state=node_state(its, watts, states),
            load=its,
            watts=watts,
            assumed_watts=watts if its is ChainLoad.ASSUMED else None,
            severity=node_marks.get(name, ""),
        )
        node = fleet.nodes.get(name)
        if node is None:
            continue
        span, marks = node.rows[Table.GPU], gpu_marks.get(name, {})
        for gpu, drawn_watts, limit in zip(
            node.inventory.gpus, power[span].tolist(), limits[span].tolist(), strict=True
        ):
            reading = plain(drawn_watts)
            gpu_load = ChainLoad.UNKNOWN if reading is None else ChainLoad.MEASURED
            yield ChainPiece(
                id=f"gpu/{gpu.uuid}",
                kind=ChainKind.GPU,
                name=gpu.uuid,
                label=f"GPU {gpu.index}",
                parents=[f"node/{name}"],
                state=node_state(gpu_load, reading, states),
                load=gpu_load,
                watts=reading,
                limit_watts=plain(limit),
                severity=marks.get(gpu.uuid, ""),
            )


OPERATIONS = (
    Operation(
        "/api/v1/power/chain",
        chain,
        "powerChain",
        "The power chain from sources to GPUs, as the web pages draw it: pieces with what feeds them, load, limits, and "
        "what flows. Of a small site all; of a larger one the branch of the most urgent circuit, or of the one that is "
        "asked for, with the other feeds of its nodes.",
        ChainReply,
        (Parameter("circuit", "Name of a circuit or panel whose branch is wanted.", "office"),),
        (404,),
        scope=AccessScope.READ,
    ),
)
