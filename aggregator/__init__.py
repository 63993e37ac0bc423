"""One per cluster or shard: takes frames in, accounts for every one, stores, judges and serves."""
