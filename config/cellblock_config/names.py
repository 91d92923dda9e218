"""The pattern for names of tenants, plans, roles and keys."""

#: No slash and no space: the ledger joins names with them.
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}$"
