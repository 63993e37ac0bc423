"""Parts of an aggregator that is one of several, where the settings want it. A single one loads none of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from aggregator.config import AggregatorConfig
from aggregator.impairments import Impairments
from aggregator.store.executor import StoreExecutor
from alerts.engine.engine import RuleEngine

if TYPE_CHECKING:
    from aggregator.alerting.shared_incidents import SharedIncidents
    from aggregator.cluster.member import ClusterMember
    from aggregator.site.role import SiteRole
    from aggregator.store.shared.groups import SharedGroups


def site_role_of(config: AggregatorConfig, impairments: Impairments) -> SiteRole | None:
    """Return the part that an aggregator has in what one place must judge; None for a single one."""
    if not config.members.nats:
        return None
    from aggregator.cluster.nats import NatsCoordination  # noqa: PLC0415 - not for a single aggregator
    from aggregator.site.role import SiteRole  # noqa: PLC0415

    return SiteRole(config.members, NatsCoordination(config.members, config.cluster), impairments)


def shared_incidents_of(role: SiteRole | None, held: Callable[[], Mapping[str, int]]) -> SharedIncidents | None:
    """Return the incidents that an aggregator has in common with others; None for a single one. `held`: epochs of its groups."""
    if role is None:
        return None
    from aggregator.site.incidents import ClusterIncidents  # noqa: PLC0415 - not for a single aggregator

    return ClusterIncidents(role, lambda: dict(held()))


def shared_groups_of(config: AggregatorConfig, store: StoreExecutor, impairments: Impairments) -> SharedGroups | None:
    """Return the groups of a member in the shared storage, where the settings want one."""
    if not config.members.storage.url:
        return None
    from aggregator.store.shared.groups import SharedGroups  # noqa: PLC0415 - not for a single aggregator
    from aggregator.store.shared.store import SharedStore  # noqa: PLC0415
    from aggregator.store.shared.upkeep import SharedUpkeep  # noqa: PLC0415

    if not isinstance(store.store, SharedStore):
        return None  # one that all members share by itself
    return SharedGroups(store, store.store, SharedUpkeep(store.store, impairments))


def peers_of(
    engine: RuleEngine, member: ClusterMember, impairments: Impairments, now: Callable[[], float]
) -> Callable[[], Awaitable[None]]:
    """Have the rules compare jobs over several members; return the task that asks the others. `now`: monotonic seconds."""
    from aggregator.cluster.cluster_peers import ClusterPeers  # noqa: PLC0415 - not for a single aggregator
    from alerts.rules.peers_elsewhere import PeersElsewhere  # noqa: PLC0415

    elsewhere = PeersElsewhere()
    engine.join(elsewhere)
    return ClusterPeers(elsewhere, member, impairments, now).run
