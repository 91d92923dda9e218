"""What tenants, plans, roles and keys may be called."""

#: No slash and no space: the ledger joins names with them.
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}$"
