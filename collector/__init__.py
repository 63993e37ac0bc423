"""The collector, one per node: reads GPUs, keeps every frame in a ring on disk, publishes it."""
