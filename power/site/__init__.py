"""The `[power]` section: `config` as written, `decode`, and `layout` with every default filled in."""
