"""Turns a caller's request into the manifest to store: policy, plan, limits, price, seal and signature."""
