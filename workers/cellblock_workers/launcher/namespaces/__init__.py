"""Sandboxes forked from a warmed interpreter into fresh namespaces; no daemon, no image runtime."""
