"""Answers of the API as text for a terminal."""
