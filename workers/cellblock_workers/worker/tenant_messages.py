"""What a tenant is told of a fault of the host: its kind and the remedy, and no path of the host.

Errors of launcher and runtimes name files for operators (images, cgroups, sockets); their log has them whole.
"""

from __future__ import annotations

import re
from dataclasses import replace

from cellblock.contract.outcomes import Outcome
from cellblock.ledger import Claim
from cellblock_workers.log import get_logger
from cellblock_workers.worker.outcome import RunOutcome

_log = get_logger(__name__)

#: An absolute path, also behind unix: or file:, but not an address such as http://host/path. Our errors show
#: a remedy as an example in quotation marks, which is not a path of the host.
_PATH = re.compile(
    r"(?P<example>\bsuch as '[^'\n]{1,80}')|(?:\b(?:unix|file)://|(?<![\w/.])(?!//))/[^\s'\"`();,:]+"
)
_INSTEAD = "(a path of the host)"
#: With other outcomes, paths in the message are the job's own.
_OURS = frozenset({Outcome.SANDBOX_ERROR, Outcome.REJECTED})


def without_host_paths(message: str, given: str | None = None) -> str:
    """The message with every path replaced, except the one that the tenant has ``given`` itself."""
    return _PATH.sub(lambda found: found[0] if found["example"] or found[0] == given else _INSTEAD, message)


def for_tenants(ended: RunOutcome, claim: Claim) -> RunOutcome:
    """The same end; if the fault was ours, without paths, which go to the log."""
    if ended.outcome not in _OURS:
        return ended
    given = claim.manifest.context_path
    error = ended.error and ended.error.model_copy(
        update={"message": without_host_paths(ended.error.message, given)}
    )
    evidence = {
        name: without_host_paths(said, given) if isinstance(said, str) else said
        for name, said in ended.evidence.items()
    }
    if error != ended.error or evidence != ended.evidence:
        _log.error(
            "fault_told_without_paths",
            job_id=claim.job_id,
            fence=claim.fence,
            reason=ended.error.message if ended.error else None,
            evidence=dict(ended.evidence),
        )
    return replace(ended, error=error, evidence=evidence)
