"""A small certificate authority for the broker, its nodes and its aggregators: `kilowatch pki`."""
