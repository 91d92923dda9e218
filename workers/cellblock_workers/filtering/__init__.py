"""Runs the output filter in processes of its own, so that no output can take a worker down."""
