"""The power chain as it is drawn and as the API has it: of a small site all, else the branch of the most urgent
circuit; and what flows through each of its pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from api.chain import ChainKind, ChainLoad, ChainPiece, ChainState
from api.power import CircuitState, LoadState
from power.site.layout import Circuit, SiteLayout
from present.circuit.figures import assumed, known, load, share

MOST_NODES, MOST_CIRCUITS = 8, 8


@dataclass(frozen=True, slots=True)
class Branch:
    """Circuits that feed nodes, by the circuits above them."""

    feeders: Sequence[CircuitState]
    """Circuits that feed the `leaves`, in the order in which they are drawn."""
    leaves: Sequence[CircuitState]
    """Circuits with nodes, those of one feeder beside each other."""
    nodes: Sequence[str]
    """Nodes, in the order in which they are drawn."""
    folded: int
    """Circuits with nodes that are not drawn."""
    left_out: int
    """Nodes of the circuits drawn that are not drawn."""
    around: str
    """Circuit whose branch it is; "" for the most urgent one's, or all."""
    states: Mapping[str, ChainState]
    """State of each circuit, also through those that feed the `feeders`."""


def branch(circuits: Sequence[CircuitState], around: str = "", most_nodes: int = MOST_NODES) -> Branch:
    """Return what is drawn of circuits. `circuits`: the most urgent first; `around`: the circuit whose branch is
    wanted, or "" for the most urgent one's where not all fit; `most_nodes`: nodes that are drawn."""
    by_name = {one.id: one for one in circuits}
    leaves = leaves_of(circuits)
    if around:
        its = [one for one in leaves if around in _above(one, by_name)]
        chosen = _with_other_sides(its, leaves)
    else:
        chosen = leaves if _fits(leaves, most_nodes) else _with_other_sides(leaves[:1], leaves)
    chosen = sorted(chosen, key=lambda one: (one.parent or "", one.id))
    feeders = [by_name[name] for name in dict.fromkeys(one.parent for one in chosen) if name in by_name]
    nodes = sorted({name for one in chosen for name in one.nodes})
    folded, left_out = len(leaves) - len(chosen), max(0, len(nodes) - most_nodes)
    return Branch(feeders, chosen, nodes[:most_nodes], folded, left_out, around, _states(by_name))


def leaves_of(circuits: Sequence[CircuitState]) -> list[CircuitState]:
    """Return the circuits that feed nodes themselves, in the same order: a panel lists the nodes of all below it."""
    feeding = {one.parent for one in circuits}
    return [one for one in circuits if one.nodes and one.id not in feeding]


def circuit_pieces(
    found: Branch, circuits: Iterable[CircuitState], layout: SiteLayout, severity: Mapping[str, str]
) -> Iterator[ChainPiece]:
    """Yield the sources, and all circuits of a branch with what can feed them, parents first. `severity`: the worst
    of what fires on a circuit."""
    by_name = {one.id: one for one in circuits}
    wanted: dict[str, None] = {}
    open_ = [one.id for one in found.leaves]
    while open_:
        name = open_.pop()
        if name in layout.circuits and name not in wanted:
            wanted[name] = None
            open_ += _inputs(layout.circuits[name])
    # Parents stand before children in the site; leaves keep the order in which they are drawn.
    drawn = [one.id for one in found.leaves]
    order = [name for name in layout.circuits if name in wanted and name not in drawn] + drawn
    fed: dict[str, list[ChainState]] = {}
    for name in order:
        for above in _inputs(layout.circuits[name])[:1]:
            fed.setdefault(above, []).append(found.states.get(name, ChainState.UNKNOWN))
    sources = dict.fromkeys(
        above for name in order for above in _inputs(layout.circuits[name]) if above not in layout.circuits
    )
    for name in sources:
        yield ChainPiece(
            id=f"source/{name}",
            kind=ChainKind.SOURCE,
            name=name,
            label=name,
            state=source_state(fed.get(name, ())),
            load=ChainLoad.UNKNOWN,
        )
    for name in order:
        circuit = layout.circuits[name]
        parents = [f"{'circuit' if above in layout.circuits else 'source'}/{above}" for above in _inputs(circuit)]
        state = found.states.get(name, ChainState.UNKNOWN)
        now = by_name.get(name) or CircuitState(name)  # one that can't be computed is a piece too
        yield _circuit_piece(now, circuit, parents, state, severity.get(name, ""))


def source_state(fed: Sequence[ChainState]) -> ChainState:
    """Return the state of a source, on which nothing is measured: it flows where one of the circuits on it does."""
    if {ChainState.FLOWS, ChainState.OVER} & set(fed):
        return ChainState.FLOWS
    return fed[0] if fed else ChainState.UNKNOWN


def node_state(its: ChainLoad, watts: float | None, feeds: Sequence[ChainState]) -> ChainState:
    """Return what flows into a node or GPU. `feeds`: the states of the circuits that it hangs on."""
    if its is ChainLoad.ASSUMED or watts is None or its is ChainLoad.UNKNOWN:
        if feeds and set(feeds) <= _DARK:
            return ChainState.LOST
        return ChainState.ASSUMED if watts is not None else ChainState.UNKNOWN
    return ChainState.FLOWS if watts > 0 else ChainState.IDLE


def _inputs(circuit: Circuit) -> list[str]:
    """Return the names of what can feed a circuit, the one in use first."""
    first = circuit.parent or circuit.source
    return list(dict.fromkeys(one for one in (first, *circuit.inputs) if one))


def _circuit_piece(
    circuit: CircuitState, element: Circuit, parents: list[str], state: ChainState, severity: str
) -> ChainPiece:
    ratio, rated = share(circuit), circuit.rated_amps
    amps = [each for each in circuit.amps.values() if each is not None]
    now = max(amps) if amps and known(circuit) else None
    watts = load(circuit)
    return ChainPiece(
        id=f"circuit/{circuit.id}",
        kind=ChainKind(element.kind),
        name=circuit.id,
        label=circuit.id,
        parents=parents,
        state=state,
        load=_load(circuit, watts),
        watts=watts,
        assumed_watts=circuit.assumed_watts if watts is not None else None,
        amps=now if ratio is None or rated is None else round(ratio * rated, 4),
        load_ratio=ratio,
        rated_amps=rated,
        continuous_amps=circuit.continuous_amps,
        trip_known=circuit.trip_known,
        trip_seconds=circuit.trip_seconds,
        group=circuit.group,
        severity=severity,
    )


def _load(circuit: CircuitState, watts: float | None) -> ChainLoad:
    if watts is None or circuit.load_state is None:
        return ChainLoad.UNKNOWN
    if circuit.load_state is LoadState.UNKNOWN:  # only a part of it is a number
        return ChainLoad.PARTIAL
    return ChainLoad(circuit.load_state)


_DARK = {ChainState.OPEN, ChainState.LOST}


def _states(circuits: Mapping[str, CircuitState]) -> dict[str, ChainState]:
    """Return what flows through each circuit."""
    own = {name: _own_state(one) for name, one in circuits.items()}

    def dark_above(name: str) -> bool:
        return any(own[above] is ChainState.OPEN for above in _above(circuits[name], circuits) - {name})

    quiet = {ChainState.IDLE, ChainState.UNKNOWN, ChainState.ASSUMED}
    return {name: ChainState.LOST if state in quiet and dark_above(name) else state for name, state in own.items()}


def _own_state(circuit: CircuitState) -> ChainState:
    """Return what flows through a circuit, whatever feeds it."""
    if circuit.more.get("trip_suspected"):
        return ChainState.OPEN
    ratio = share(circuit)
    if not known(circuit) or ratio is None:
        return ChainState.UNKNOWN
    if ratio <= 0:
        return ChainState.IDLE
    if ratio > 1:
        return ChainState.OVER
    return ChainState.ASSUMED if assumed(circuit) else ChainState.FLOWS


def _above(circuit: CircuitState, by_name: Mapping[str, CircuitState]) -> set[str]:
    """Return a circuit's name and those of all that feed it."""
    found: set[str] = set()
    at: CircuitState | None = circuit
    while at is not None and at.id not in found:
        found.add(at.id)
        at = by_name.get(at.parent or "")
    return found


def _fits(leaves: Sequence[CircuitState], most_nodes: int) -> bool:
    nodes = {name for one in leaves for name in one.nodes}
    return len(leaves) <= MOST_CIRCUITS and len(nodes) <= most_nodes


def _with_other_sides(first: Sequence[CircuitState], leaves: Sequence[CircuitState]) -> list[CircuitState]:
    """Return circuits with those that feed their nodes too: the other sides of their redundancy."""
    names = {one.id for one in first}
    its = {node for one in first for node in one.nodes[:MOST_NODES]}
    beside = [one for one in leaves if one.id not in names and its & set(one.nodes)]
    return [*first, *beside][:MOST_CIRCUITS]
