"""Devices in words: readings of any, a GPU, and who uses it."""
