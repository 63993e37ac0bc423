"""The site role of a cluster: what one place must judge, because its causes span shard groups."""
