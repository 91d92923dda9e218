"""The ledger on real Redis, and on the in-process Redis of embedded runs."""
