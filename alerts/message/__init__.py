"""The content of a notification (`page`), and its forms as text, Markdown and table."""
