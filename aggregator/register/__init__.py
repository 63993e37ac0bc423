"""Declarations of people about nodes: expected, retired, renamed."""
