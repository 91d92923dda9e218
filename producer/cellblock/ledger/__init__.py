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

__all__ = [
    "Admission",
    "Claim",
    "Dropped",
    "Held",
    "Keys",
    "Ledger",
    "Pulse",
    "Transition",
    "connect",
]
