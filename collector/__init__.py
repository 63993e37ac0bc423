"""One per node: reads the GPUs, keeps every frame in a ring on disk, and publishes it."""
