"""Tests of the words that all faces show."""
