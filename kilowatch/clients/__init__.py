"""Clients of other programs: a running aggregator, the bus, NetBox."""
