"""Numbered errors of the NVIDIA driver: their catalogue, and the evaluation of a line."""
