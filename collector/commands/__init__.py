"""Work of single commands, without a service: all readings once, all jobs once, a recording."""
