"""The electrical side of a running aggregator: readings in (`fleet_power`), `service`, results out.

`site_loader` reads the configuration, `checkpoint` and `snapshot_log` are on disk, `plan`, `report` and
`energy_sampler` answer questions.
"""
