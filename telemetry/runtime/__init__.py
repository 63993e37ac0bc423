"""Work of a process: tasks and threads, their supervision, parts that are set aside, pauses between tries."""
