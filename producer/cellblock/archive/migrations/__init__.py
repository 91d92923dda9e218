"""The changes of the archive's schema, in the order of their numbers (Alembic)."""
