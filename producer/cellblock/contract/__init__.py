"""What callers and fleets agree on: jobs, results, outcomes, events and values, with every bound checked."""
