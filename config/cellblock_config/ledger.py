"""Settings of the ledger: leases, retries, how long jobs are kept, and how much one may bring."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from cellblock_config.group import PositiveSeconds, SettingsGroup
from cellblock_config.levels import MIB


class LedgerSettings(SettingsGroup):
    """The job protocol's constants."""

    lease_s: float = Field(
        10.0,
        gt=0,
        le=3600,
        description="How long a worker's right to a job lasts without a beat; then the job runs again.",
    )
    beat_s: PositiveSeconds = Field(3.0, description="How often a worker renews its leases.")
    reap_s: PositiveSeconds = Field(
        1.0, description="How often the leader of the upkeep looks after the store."
    )
    lead_s: PositiveSeconds = Field(
        3.0,
        description="One worker looks after the store; another does when it was not heard of for this long.",
    )
    loss_limit: int = Field(
        3, ge=1, le=100, description="After this many lost workers a job ends as worker_lost."
    )
    loss_backoff_s: tuple[Annotated[float, Field(ge=0, le=3600)], ...] = Field(
        (0.0, 5.0, 30.0), min_length=1, description="Pause after the first, second, ... lost worker."
    )
    fault_retries: int = Field(2, ge=0, le=20, description="How often a fault of ours is tried again.")
    retry_backoff_s: PositiveSeconds = Field(1.0, description="Before the first retry; then twice as long.")
    retry_backoff_max_s: PositiveSeconds = Field(300.0, description="The longest pause before a retry.")
    tenant_slots: int = Field(0, ge=0, description="Jobs of one tenant that run at once; 0 for no bound.")
    expires_s: PositiveSeconds = Field(
        86_400.0, description="A job that has not started by then is rejected; a job may ask for less."
    )
    republish_after_s: PositiveSeconds = Field(
        5.0, description="A job that could be claimed for this long gets another message."
    )
    queue_depth: int = Field(100_000, ge=1, description="Jobs that may wait in all; more are refused.")
    job_ttl_s: int = Field(7 * 86_400, ge=60, description="A job that never ends is forgotten after this.")
    result_ttl_s: int = Field(
        86_400, ge=10, description="How long jobs that ended well are kept; a plan may say otherwise."
    )
    failed_ttl_s: int = Field(
        3 * 86_400,
        ge=10,
        description="How long failed jobs are kept, if that is longer: somebody has to find out why.",
    )
    dead_ttl_s: int = Field(
        7 * 86_400, ge=60, description="How long jobs that ended through our fault are kept."
    )
    dead_kept: int = Field(10_000, ge=1, description="How many of those are kept at most.")
    memory_bytes: int = Field(
        0, ge=0, description="What the store may use, where that is less than its maxmemory. 0: maxmemory."
    )
    tenant_percent: int = Field(
        50, ge=1, le=100, description="Percent of the store's memory that the jobs of one tenant may take."
    )
    result_least_s: int = Field(
        60,
        ge=0,
        description="How long an ended job is kept at least, unless its result was fetched, or the store is "
        "fuller than 95 %, or than 85 % and its tenant holds more than an even part of it.",
    )
    events_read_ttl_s: int = Field(
        600, ge=0, description="Events that every group has read are dropped at this age."
    )
    events_ttl_s: int = Field(3 * 86_400, ge=10, description="Older events are dropped, read or not.")
    events_kept: int = Field(
        1_000_000,
        ge=100,
        description="Where there are more events, the oldest are dropped, read or not: the last resort.",
    )
    code_bytes: int = Field(1 * MIB, ge=1, le=16 * MIB, description="The longest program of a job.")
    stdin_bytes: int = Field(8 * MIB, ge=0, le=16 * MIB, description="The longest stdin of a job.")
    files_bytes: int = Field(8 * MIB, ge=0, le=32 * MIB, description="All files of a job, with their names.")
    files_count: int = Field(256, ge=0, le=10_000, description="Files that a job may bring.")
    env_bytes: int = Field(
        32 * 1024, ge=0, le=MIB, description="All environment variables of a job together."
    )
    inputs_bytes: int = Field(8 * MIB, ge=0, le=32 * MIB, description="All inputs, as JSON or Arrow.")
    evaluation_bytes: int = Field(
        8 * MIB, ge=0, le=32 * MIB, description="All programs and tests of one evaluation."
    )
    value_bytes: int = Field(1 * MIB, ge=0, le=16 * MIB, description="A longer value is left out.")
    artifacts_count: int = Field(64, ge=0, le=10_000, description="Files that a job may leave.")
    artifact_bytes: int = Field(4 * MIB, ge=0, le=32 * MIB, description="One file; a larger one is left out.")
    artifacts_bytes: int = Field(16 * MIB, ge=0, le=64 * MIB, description="All returned files of one job.")

    @model_validator(mode="after")
    def _lease_outlives_three_beats(self) -> LedgerSettings:
        if self.lease_s < 3 * self.beat_s:
            raise ValueError(
                f"ledger.lease_s ({self.lease_s:g}) must be at least three times ledger.beat_s "
                f"({self.beat_s:g}): one lost beat must not cost a job its lease"
            )
        return self

    @model_validator(mode="after")
    def _reapers_are_in_time(self) -> LedgerSettings:
        if self.lead_s < 2 * self.reap_s:
            raise ValueError(
                f"ledger.lead_s ({self.lead_s:g}) must be at least twice ledger.reap_s ({self.reap_s:g}): "
                "or who leads the upkeep would lose the lead between two rounds"
            )
        if self.quiet_s < 2 * self.reap_s:
            raise ValueError(
                f"ledger.reap_s ({self.reap_s:g}) must be at most half of ledger.lease_s less two beats "
                f"({self.quiet_s:g}): a slower reaper would take its own pauses for outages"
            )
        return self

    @property
    def quiet_s(self) -> float:
        """A lease lasts at least this long after a store goes away: the last beat can be one beat old."""
        return self.lease_s - 2 * self.beat_s

    @model_validator(mode="after")
    def _one_artifact_fits_all(self) -> LedgerSettings:
        if self.artifact_bytes > self.artifacts_bytes:
            raise ValueError(
                f"ledger.artifact_bytes ({self.artifact_bytes}) is above ledger.artifacts_bytes "
                f"({self.artifacts_bytes}): one file has to fit into what all may have"
            )
        return self
