"""From the watts of machines to amps on every pole of every circuit, and what a lost feed does."""
