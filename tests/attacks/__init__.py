"""Attacks on the sandboxes of this machine; every group proves that it can fail."""
