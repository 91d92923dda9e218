"""cellblock: run untrusted code, one throw-away sandbox per job.

>>> from cellblock import Client, JobSpec                                  # doctest: +SKIP
>>> with Client() as client:                                               # doctest: +SKIP
...     print(client.submit(JobSpec(code="print(6*7)")).result(timeout_s=30).stdout)
"""

import typing as _typing

from cellblock_config.public_names import found_late as _found_late

if _typing.TYPE_CHECKING:
    from cellblock.admission.costs import Estimate
    from cellblock.admission.sealing import open_result
    from cellblock.aio import AsyncClient, AsyncJob
    from cellblock.api_keys import ApiKey, ApiKeys
    from cellblock.client import Client, Job
    from cellblock.contract.events import Event
    from cellblock.contract.job_spec import JobSpec, Limits, ReducedContext
    from cellblock.contract.job_status import Counts, DayUsage, DeadLetter, JobState, JobStatus, PastAttempt
    from cellblock.contract.outcomes import JobError, Outcome, Usage
    from cellblock.contract.results import (
        Artifact,
        JobResult,
        RedactionCount,
        ResultSummary,
        SkippedArtifact,
        Timings,
    )
    from cellblock.contract.values import InputValue, TableValue
    from cellblock.errors import (
        AcceptanceUnknown,
        ArchiveUnavailable,
        BlobLost,
        BlobsUnavailable,
        BudgetExceeded,
        CallerError,
        CannotOpen,
        CellblockError,
        InvalidJob,
        NotConfigured,
        OperatorError,
        PolicyDenied,
        PolicyError,
        PolicyUnavailable,
        RateLimited,
        ResultTimeout,
        SandboxUnavailable,
        SchemaMismatch,
        StoreFull,
        StoreUnavailable,
        UnknownJob,
    )
    from cellblock.governance import Governance, OverrideChange
    from cellblock.prompts import context_prompt, result_prompt

    __version__: str
else:
    __getattr__, __dir__ = _found_late(
        __name__,
        {
            "cellblock.version": ("__version__",),
            "cellblock.admission.costs": ("Estimate",),
            "cellblock.admission.sealing": ("open_result",),
            "cellblock.aio": ("AsyncClient", "AsyncJob"),
            "cellblock.api_keys": ("ApiKey", "ApiKeys"),
            "cellblock.client": ("Client", "Job"),
            "cellblock.contract.events": ("Event",),
            "cellblock.contract.job_spec": ("JobSpec", "Limits", "ReducedContext"),
            "cellblock.contract.job_status": (
                "Counts",
                "DayUsage",
                "DeadLetter",
                "JobState",
                "JobStatus",
                "PastAttempt",
            ),
            "cellblock.contract.outcomes": ("JobError", "Outcome", "Usage"),
            "cellblock.contract.results": (
                "Artifact",
                "JobResult",
                "RedactionCount",
                "ResultSummary",
                "SkippedArtifact",
                "Timings",
            ),
            "cellblock.contract.values": ("InputValue", "TableValue"),
            "cellblock.errors": (
                "AcceptanceUnknown",
                "ArchiveUnavailable",
                "BlobLost",
                "BlobsUnavailable",
                "BudgetExceeded",
                "CallerError",
                "CannotOpen",
                "CellblockError",
                "InvalidJob",
                "NotConfigured",
                "OperatorError",
                "PolicyDenied",
                "PolicyError",
                "PolicyUnavailable",
                "RateLimited",
                "ResultTimeout",
                "SandboxUnavailable",
                "SchemaMismatch",
                "StoreFull",
                "StoreUnavailable",
                "UnknownJob",
            ),
            "cellblock.governance": ("Governance", "OverrideChange"),
            "cellblock.prompts": ("context_prompt", "result_prompt"),
        },
    )

__all__ = [
    "AcceptanceUnknown",
    "ApiKey",
    "ApiKeys",
    "ArchiveUnavailable",
    "Artifact",
    "AsyncClient",
    "AsyncJob",
    "BlobLost",
    "BlobsUnavailable",
    "BudgetExceeded",
    "CallerError",
    "CannotOpen",
    "CellblockError",
    "Client",
    "Counts",
    "DayUsage",
    "DeadLetter",
    "Estimate",
    "Event",
    "Governance",
    "InputValue",
    "InvalidJob",
    "Job",
    "JobError",
    "JobResult",
    "JobSpec",
    "JobState",
    "JobStatus",
    "Limits",
    "NotConfigured",
    "OperatorError",
    "Outcome",
    "OverrideChange",
    "PastAttempt",
    "PolicyDenied",
    "PolicyError",
    "PolicyUnavailable",
    "RateLimited",
    "RedactionCount",
    "ReducedContext",
    "ResultSummary",
    "ResultTimeout",
    "SandboxUnavailable",
    "SchemaMismatch",
    "SkippedArtifact",
    "StoreFull",
    "StoreUnavailable",
    "TableValue",
    "Timings",
    "UnknownJob",
    "Usage",
    "context_prompt",
    "open_result",
    "result_prompt",
]
