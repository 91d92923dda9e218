"""A bucket has one owner: another store would remove blobs that its jobs name."""

from __future__ import annotations

from cellblock.blobs import Blobs, of_another
from cellblock.errors import NotConfigured
from cellblock.ledger import Ledger
from cellblock.ledger.upkeep import Identity


def require_owner(ledger: Ledger, blobs: Blobs) -> Identity:
    """This store's identity. Makes it the owner of the blobs if they have none.

    Raises :class:`NotConfigured` where they belong to another store, :class:`StoreUnavailable`.
    """
    store = ledger.upkeep.identity()
    if (owner := blobs.own(store.name)) != store.name:
        raise NotConfigured(of_another(owner, store.name))
    return store
