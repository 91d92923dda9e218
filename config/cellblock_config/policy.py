"""Settings of policy: which service or policies decide whether a job may run at all."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, field_validator, model_validator

from cellblock_config.group import OptionalPath, OptionalSecret, SettingsGroup


class PolicySettings(SettingsGroup):
    """Without a folder or an address no policy is asked: every job of the producer may run."""

    model_config = ConfigDict(hide_input_in_errors=True)

    folder: OptionalPath = Field(None, description="Cedar policies, *.cedar; config/policies has ours.")
    url: str | None = Field(None, description="A decision point of your own, asked by POST.")
    token: OptionalSecret = Field(None, description="Sent to it as a bearer token.")
    timeout_s: float = Field(
        2.0, gt=0, le=60, description="How long one question may take; no answer in time is a denial."
    )
    max_recursion_depth: int = Field(
        3, ge=0, le=16, description="How deep runs nest: jobs that ask for jobs; 0 for none."
    )
    cache_s: float = Field(5.0, ge=0, le=3600, description="How long an answer of it is good for.")

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str | None) -> str | None:
        if url is not None and (urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname):
            raise ValueError("must start with http:// or https:// and name a host")
        return url

    @model_validator(mode="after")
    def _one_decides(self) -> PolicySettings:
        if self.folder is not None and self.url is not None:
            raise ValueError("policy.folder and policy.url are both set: only one can decide")
        return self

    @model_validator(mode="after")
    def _token_is_told_to_nobody_else(self) -> PolicySettings:
        address = urlsplit(self.url or "")
        if self.token is not None and address.scheme == "http" and not _is_loopback(address.hostname or ""):
            raise ValueError(
                "policy.url is http and policy.token is set: anybody between could read it; use https, "
                "or an address of this machine (127.0.0.1, [::1], localhost)"
            )
        return self


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
