"""The electrical model: circuits and their loads, and when a breaker trips.

Pure: no files, no network, no clock. Every trip time is an estimate; a breaker may trip earlier or
later.
"""
