"""Judge a change: run all checks and tests, try what failed once more alone, and tell both (`make gate`)."""
