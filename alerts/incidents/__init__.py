"""From alerts to notifications: `lifecycle`, `grouping`, `suppression`, `notification_schedule`.

`manager` is the way in; `index` holds all state and marks what changed, for the journal.
"""
