"""The collector on the bus."""
