"""Many aggregators as one: members, their shard groups, and what they agree on through NATS."""
