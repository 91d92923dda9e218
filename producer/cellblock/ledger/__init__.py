"""The ledger: Redis keys, the Lua transitions, and the one class that calls them."""

from cellblock.ledger.keys import Keys
from cellblock.ledger.store import (
    Admission,
    Claim,
    Dropped,
    Held,
    Ledger,
    Pulse,
    Transition,
    connect,
)
from cellblock.ledger.upkeep import Following, Round

__all__ = [
    "Admission",
    "Claim",
    "Dropped",
    "Following",
    "Held",
    "Keys",
    "Ledger",
    "Pulse",
    "Round",
    "Transition",
    "connect",
]
