"""The notice of an alert by itself, for when a fault of our own keeps it from being grouped.

A page that comes twice, or without its incident, is better than none.
"""

from __future__ import annotations

import hashlib

from alerts.notice import Notice
from api.alerts import Action, Alert, Incident


def plain_notice(alert: Alert, wall_ns: int) -> Notice:
    """Return a notice that an alert has begun, with an incident of this alert alone."""
    digest = hashlib.sha256(alert.key.encode()).hexdigest()[:20]
    key = f"{alert.rule[:100]}-alone-{digest}"
    incident = Incident(
        key=key,
        group={"rule": alert.rule, **({"node": alert.node} if alert.node else {})},
        severity=alert.severity,
        title=alert.summary,
        began=alert.since,
        changed=wall_ns,
        ended=None,
        alerts=(alert,),
        firing=1,
        total=1,
        remediation=alert.remediation,
        owner=alert.owner,
    )
    return Notice(id=f"{key}.{wall_ns}", action=Action.TRIGGER, incident=incident, at=wall_ns, reason="new")
