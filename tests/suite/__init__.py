"""How the suite runs: its tiers, its groups, what it measures of itself and what it says at the end."""
