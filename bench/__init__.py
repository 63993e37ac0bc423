"""Reproducible measurements: `make bench`. Each is a ratio against something in the same run."""
