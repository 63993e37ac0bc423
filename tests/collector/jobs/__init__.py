"""Tests of collector.jobs."""
