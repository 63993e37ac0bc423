"""The scheduler's own word on jobs: asked once for the cluster, by its commands, each with a deadline."""
