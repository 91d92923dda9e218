"""The privileged half of a host: owns backends, warm pools, cgroups and the janitor.

It has no network, sees no job's code and parses no byte from a sandbox.
"""
