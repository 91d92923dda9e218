"""The fleet's side: workers that talk to Redis, launchers that own sandboxes, the guest inside them."""
