"""The fitness of a fleet whose nodes several aggregators hold, from the scores that each gives its own. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence

from aggregator.fitness.score import NodeCondition, fleet_fitness, job_fitness, node_fitness, worst_first
from aggregator.fitness.service import MOST_SAMPLES, SAMPLE_NS
from api.fitness import FitnessReply, FitnessSample
from telemetry.wire.jobs import JobKey


def joined_fitness(
    parts: Mapping[str, FitnessReply],
    vouches: Callable[[str, str], bool],
    unheard: Iterable[NodeCondition],
    jobs: Mapping[JobKey, set[str]],
    history: Sequence[FitnessSample],
    at: int,
) -> FitnessReply:
    """Return the parts, by the name of the aggregator, as one. `vouches`: whether an aggregator has a node now;
    `unheard`: nodes whose aggregator does not answer, which are not known; `at`: ns since 1970."""
    found = {one.node: one for name, part in parts.items() for one in part.nodes if vouches(name, one.node)}
    found |= {one.node: node_fitness(one, None) for one in unheard}
    currency = next((part.fleet.currency for part in parts.values() if part.fleet.currency), "")
    scores = [job_fitness(key.scheduler, key.id, its, found) for key, its in sorted(jobs.items())]
    return FitnessReply(
        at=at,
        fleet=fleet_fitness(list(found.values()), currency),
        nodes=worst_first(found.values()),
        jobs=sorted(scores, key=lambda one: one.score),
        history=list(history),
    )


def joined_history(histories: Iterable[Sequence[FitnessSample]]) -> list[FitnessSample]:
    """Return the past of several aggregators as one, by steps of five minutes. A sample stands for two of them, for
    they keep no common time; the score is the mean by nodes."""
    pasts = [(list(its), [each.at for each in its]) for its in histories if its]
    if not pasts:
        return []
    last = max(times[-1] for _, times in pasts) // SAMPLE_NS
    first = max(min(times[0] for _, times in pasts) // SAMPLE_NS, last - MOST_SAMPLES + 1)
    found = []
    for step in range(first, last + 1):
        end = (step + 1) * SAMPLE_NS
        newest = [its[place - 1] for its, times in pasts if (place := bisect_right(times, end - 1))]
        standing = [each for each in newest if each.at >= end - 2 * SAMPLE_NS]
        if any(each.at >= end - SAMPLE_NS for each in standing):
            found.append(_sum(standing))
    return found


def _sum(samples: Sequence[FitnessSample]) -> FitnessSample:
    fit, degraded, out, unknown = (
        sum(getattr(each, name) for each in samples) for name in ("fit", "degraded", "out", "unknown")
    )
    weights = [
        (each.score, each.fit + each.degraded + each.out + each.unknown) for each in samples if each.score is not None
    ]
    nodes = sum(weight for _, weight in weights)
    score = sum(score * weight for score, weight in weights) // nodes if nodes else None
    return FitnessSample(max(each.at for each in samples), score, fit, degraded, out, unknown)
