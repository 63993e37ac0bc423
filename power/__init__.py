"""The electrical model: what hangs on which breaker, what it draws, and when it trips.

Pure: no files, no network, no clock. Every time it gives is an estimate; a breaker may trip earlier
or later.
"""
