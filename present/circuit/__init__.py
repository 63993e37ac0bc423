"""Circuits in words: figures, what happens next, rows of a page, and answers to a what-if."""
