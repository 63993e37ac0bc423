"""Tables of GPUs and nodes: columns, sorting, the filter language, and the widget."""
