"""cellblock: run untrusted code, one throw-away sandbox per job.

>>> from cellblock import Client, JobSpec                                  # doctest: +SKIP
>>> with Client() as client:                                               # doctest: +SKIP
...     print(client.submit(JobSpec(code="print(6*7)")).result(timeout_s=30).stdout)
"""

from importlib.metadata import version as _version

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

__version__ = _version("cellblock")

__all__ = [
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
