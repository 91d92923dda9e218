"""Posts events to the addresses that an operator names: signed, repeated, and never into the own network."""
