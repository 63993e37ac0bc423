"""Several aggregators as one: pure parts first, then real servers and processes."""
