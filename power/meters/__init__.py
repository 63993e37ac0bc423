"""Meters: payloads of plugs, clamps, PDUs, BMCs and UPSs, decoded into readings. Pure.

A meter's configuration is its own class, named in `power.meters.config.Meter`. A payload becomes
`MeterSample`s (part of the meter, quantities), and `power.meters.meter_record` turns these into
`MeterReading`s of the circuit, node or UPS that the part is attached to. The shell is
`aggregator.meters`.
"""
