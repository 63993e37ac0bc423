"""Settings of the aggregator's parts, as `kilowatch.toml` has them; `aggregator.config` has them all."""
