"""The fleet as a whole in words: whether it is fit for work, and who differs from its kind."""
