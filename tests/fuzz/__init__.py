"""Structure-aware fuzzing: valid inputs of every kind, changed in one place or several, by a seed.

Input K of a kind is a pure function of (seed, kind, K): `python -m tests.fuzz --kind frame --seed 7
--first 123 --count 1` makes the same one again on any machine.
"""
