"""Where readings are stored: the embedded store, DuckDB for the newest hours and Parquet before."""
