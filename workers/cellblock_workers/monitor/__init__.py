"""Flower, which shows each job of the ledger as one task."""
