"""Files of a process: private ones, its state, logs of records, secrets, tokens, and compressed ones of others."""
