"""Shared storage: the readings of all members of a cluster as segments on a path or in S3."""
