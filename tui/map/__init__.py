"""The map of every GPU: where each cell is (`grid`), its colour (`heatmap`), and the widget."""
