"""Events, posted to the addresses an operator names: signed, tried again, and never into the own network."""
