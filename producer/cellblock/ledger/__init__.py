"""The ledger: Redis keys, the transitions in Lua, and the classes that call them."""

from cellblock.ledger.admissions import Admission, Candidate
from cellblock.ledger.claims import Claim, Dropped
from cellblock.ledger.connection import connect
from cellblock.ledger.keys import Keys
from cellblock.ledger.ledger import Ledger
from cellblock.ledger.replies import Pulse, PulseWord
from cellblock.ledger.transitions import Transition
from cellblock.ledger.upkeep import Following, Round

__all__ = [
    "Admission",
    "Candidate",
    "Claim",
    "Dropped",
    "Following",
    "Keys",
    "Ledger",
    "Pulse",
    "PulseWord",
    "Round",
    "Transition",
    "connect",
]
