"""Sandboxes in transient scopes of systemd, all of them in one slice."""
