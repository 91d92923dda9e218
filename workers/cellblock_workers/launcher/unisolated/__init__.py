"""Guests beside the launcher, without isolation: for development, behind a setting."""
