"""Posts events to the addresses that an operator names: signed, retried, and never into the own network."""
