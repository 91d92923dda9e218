"""The archive: ended jobs in an SQL database, for longer than Redis could keep them."""

from cellblock.archive.database import Archive, ArchivedJob, open_archive

__all__ = ["Archive", "ArchivedJob", "open_archive"]
