"""Tests of the electrical model."""
