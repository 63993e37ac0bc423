"""Electrical devices: GPUs and systems (`catalogue`), breakers, supplies, a node's power at the wall."""
