"""Faults of a real host, as its tenants hear of them."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from cellblock import Outcome
from cellblock_config import load_settings
from cellblock_workers.filtering.outgoing_filter import OutgoingFilter
from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.lease import Lease
from cellblock_workers.worker.execution import execute
from parts import NAMESPACES, launcher_process, wait_until
from unit.worker.test_tenant_messages import assert_no_path, claim_of

pytestmark = pytest.mark.way("namespaces")


def test_an_image_that_is_not_there_is_no_map_of_the_host(tmp_path: Path) -> None:
    images = {**load_settings().sandbox.images, "gone": "cellblock/gone"}
    environment = {**NAMESPACES, "CELLBLOCK_SANDBOX_IMAGES": json.dumps(images)}
    with launcher_process(tmp_path, **environment) as (path, _):
        settings = load_settings(launcher={"socket": path}, sandbox={"images": images})
        client = LauncherClient(path, timeout_s=60)
        wait_until(lambda: client.probe().isolations, 60, "the probe")
        lease = Lease(claim_of(code="0"))
        manifest = lease.claim.manifest.model_copy(update={"image": "gone"})
        with closing(OutgoingFilter(settings.egress)) as outgoing:
            result = execute(lease, manifest, client, settings, outgoing)
        lease.close()
        client.close()
    assert result.outcome is Outcome.SANDBOX_ERROR
    assert result.error is not None
    assert "is not unpacked at (a path of the host)" in result.error.message
    assert_no_path(result)
