"""`cellblock doctor` on the stores of a fleet's jobs."""

from __future__ import annotations

import pytest

from cellblock.archive.encryption import unencrypted_host
from cellblock_config.archive import ArchiveSettings


@pytest.mark.parametrize(
    ("url", "mode", "host"),
    [
        ("postgresql://u:p@db.internal/jobs", "", "db.internal"),
        ("postgresql://u:p@10.0.0.7/jobs?sslmode=prefer", "", "10.0.0.7"),
        ("postgresql://u:p@db.internal/jobs", "disable", "db.internal"),
        ("postgresql://u:p@/jobs?host=db.internal", "", "db.internal"),
        ("postgresql://u:p@db.internal/jobs?sslmode=verify-full", "", None),
        ("postgresql://u:p@db.internal/jobs", "require", None),
        ("postgresql://u:p@127.0.0.1/jobs", "", None),
        ("postgresql://u:p@[::1]/jobs", "", None),
        ("postgresql://u:p@/jobs?host=/run/postgresql", "", None),
        ("sqlite:////var/lib/cellblock/jobs.db", "", None),
    ],
)
def test_archive_on_another_machine_without_tls_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, mode: str, host: str | None
) -> None:
    monkeypatch.setenv("PGSSLMODE", mode)
    assert unencrypted_host(ArchiveSettings.model_validate({"url": url})) == host
