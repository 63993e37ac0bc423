"""The aggregator, one per cluster: receives frames, accounts for each, stores, evaluates and serves."""
