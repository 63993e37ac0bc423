"""The evidence of an incident in words: jobs that were there, what else happened, and earlier faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from api.evidence import AffectedJob, Evidence, NearbyEvent, PastFault
from present.device.gpu import gpu_name
from present.row import FactRow, Tone
from telemetry.text import counted, timestamp

NEARBY = "within five minutes on this node"
NO_JOB = "no job held a GPU"
_FEW = 4


def job_text(job: AffectedJob) -> str:
    """Return a job in a few words: `slurm 4711 pretrain of ada (physics) on GPU 0, 1`."""
    words = [job.scheduler, job.job, job.job_name if job.job_name != job.job else ""]
    words.append(f"of {job.user}" if job.user else "of an unknown user")
    words.append(f"({job.account})" if job.account else "")
    words.append(gpu_name("on", ", ".join(job.gpus)) if job.gpus else "")
    return " ".join(filter(None, words))


def card_place(card: Evidence) -> str:
    """Return where the subject of a card is."""
    return gpu_name(card.node, card.index) if card.index else card.node or card.name


def nearby_what(one: NearbyEvent) -> str:
    """Return what else happened, with its GPU: `xid 79 GPU 3`."""
    what = one.what.replace("_", " ") if one.kind == "event" else one.what
    return gpu_name(what, one.index) if one.index else what


def nearby_row(card: Evidence) -> FactRow:
    """Return what else happened on the node, in a few words."""
    return FactRow("within 5 min", counted_words([*map(nearby_what, card.nearby)], card.nearby_total))


def counted_words(words: Sequence[str], total: int = 0) -> str:
    """Return the first few different words, each with how often it is there. `total`: how many there are, listed or
    not."""
    named = [word + (f" x{count}" if count > 1 else "") for word, count in Counter(words).items()]
    more = f", and {len(named) - _FEW:,} more" if len(named) > _FEW else ""
    whole = f" ({total:,} in all)" if total > len(words) else ""
    return ", ".join(named[:_FEW]) + more + whole


def history_rows(card: Evidence) -> Iterator[tuple[FactRow, Sequence[PastFault]]]:
    """Yield how many other faults the board and the slot of a card had, and the newest of them."""
    history = card.history
    if history is None or not card.uuid:
        return
    within = f"in {counted(history.days, 'day')}"
    for label, faults, total in (
        ("this board", history.board, history.board_total),
        ("this slot", history.slot, history.slot_total),
    ):
        yield _faults(label, faults, total, card.node, within), faults


def _faults(label: str, faults: Sequence[PastFault], total: int, node: str, within: str) -> FactRow:
    if not total:
        return FactRow(label, f"no other fault {within}")
    note = counted_words([one.rule for one in faults])
    if faults:
        where = "" if faults[0].node == node else f" on {faults[0].node}"
        note += f"; the last {timestamp(faults[0].at)}{where}"
    return FactRow(label, f"{counted(total, 'other fault')} {within}", Tone.WARN, note=note)
