"""Building blocks of views that know no cluster: pure renderers, and the widgets that paint them."""
