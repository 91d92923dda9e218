"""Conformance of every isolation, and the launcher and worker against hostile peers."""
