"""InfluxDB as the store by choice: line protocol out through a spool on disk, InfluxQL back in."""
