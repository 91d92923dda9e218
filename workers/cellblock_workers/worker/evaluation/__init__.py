"""An attempt at an evaluation: a sandbox for each trial, another for the judge of its tests."""
