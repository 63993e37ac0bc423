"""The ratchet: what this tree costs beside a stored commit, in one run."""
