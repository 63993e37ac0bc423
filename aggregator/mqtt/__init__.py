"""The aggregator on the bus: one client for all messages in, and retained topics out."""
