"""How the archive's schema changes, in the order of their numbers (Alembic)."""
