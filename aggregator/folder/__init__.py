"""The data folder: what lies in it, and what of that could not be used."""
