"""Turns a JobSpec into a manifest for the ledger: plan, limits, price and signature are decided here."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from cellblock.admission.claim_check import Uploads, checked_in
from cellblock.admission.costs import Charge, CostFactors, Estimate, estimate
from cellblock.admission.gates import Gates
from cellblock.admission.nesting import Parent
from cellblock.admission.plans import Entitled, PlanFile
from cellblock.admission.policy import Principal, Question, decision_point
from cellblock.admission.policy.decision import PRODUCER, RUN
from cellblock.admission.resolve import Manifest, resolve
from cellblock.admission.sealing import seal_manifest, tenant_key
from cellblock.admission.signing import Signer
from cellblock.blobs import Blobs
from cellblock.contract.job_spec import JobSpec
from cellblock.errors import InvalidJob, PolicyDenied
from cellblock_config import Settings
from cellblock_config.plans import Override
from cellblock_config.prices import BUILT_IN, Prices, default_file

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job that the ledger may admit.

    ``gates``: the limits of its plan for the ledger to check; None without a plan. ``uploads``: parts for the
    blob store, to be put there once it is admitted.
    """

    manifest: Manifest
    gates: Gates | None = None
    uploads: Uploads = field(default_factory=dict)


class Intake:
    """Decides on jobs before anything is stored. Thread-safe.

    All methods raise :class:`InvalidJob` and :class:`PolicyDenied`.
    """

    def __init__(
        self,
        settings: Settings,
        overrides: Callable[[str], Override] = lambda tenant: Override(),
        blobs: Blobs | None = None,
    ) -> None:
        """``overrides``: a tenant's overrides, set at run time. ``blobs``: the store for long parts of jobs.

        Raises :class:`PlansError`, :class:`PricesError`.
        """
        self._settings = settings
        self._plans = PlanFile(settings, overrides)
        self._policy = decision_point(settings.policy)
        self._signer = Signer(settings.signing)
        self._blobs = blobs
        self._said = False

    def prepare(
        self, job_id: str, spec: JobSpec, principal: Principal = PRODUCER, parent: Parent | None = None
    ) -> Prepared:
        """Decides on a job: its manifest, signed, and what the ledger has to check.

        ``principal``: who asks. ``parent``: of a nested run. Also raises :class:`PolicyUnavailable`.
        """
        spec = self._adopted(spec, parent)
        entitled = self._plans.entitled(spec, keyed=principal.key_id is not None, nested=parent is not None)
        manifest, expected = self._priced(spec, parent, entitled)
        self._permit(principal, spec, manifest, entitled.name if entitled is not None else "")
        if entitled is None:
            return self._stored(job_id, spec, manifest)
        self._say_once(entitled.prices)
        rates = entitled.prices.table.rates(manifest.level)
        charge = Charge(rates=rates, cap_micros=expected.reserve_micros, cap=expected.cap or "")
        planned = manifest.model_copy(update={"plan": entitled.name, "charge": charge})
        accrued_micros = parent.accrued_micros if parent is not None else 0
        gates = Gates.of(entitled.name, entitled.plan, expected.reserve_micros, accrued_micros)
        return self._stored(job_id, spec, planned, gates)

    def _stored(self, job_id: str, spec: JobSpec, manifest: Manifest, gates: Gates | None = None) -> Prepared:
        """The manifest as the ledger stores it: sealed if confidential, long parts apart, signed."""
        uploads: Uploads = {}
        if spec.confidential:
            manifest = manifest.model_copy(update={"seal_to": tenant_key(spec, self._settings.sealing)})
            if self._settings.redis.url is not None:  # without a store everything stays in memory
                manifest = seal_manifest(job_id, manifest, self._settings.sealing)
        if self._blobs is not None:
            manifest, uploads = checked_in(job_id, manifest, self._blobs, self._settings.blobs.least_bytes)
        return Prepared(self._signer.signed(job_id, manifest), gates, uploads)

    def _say_once(self, prices: Prices) -> None:
        """Logs once what the operator should know of these prices."""
        if self._said:
            return
        self._said = True
        if prices.warning is not None:
            _log.warning("%s", prices.warning)
        elif prices.source == BUILT_IN:
            _log.info("using built-in prices; put yours into %s", default_file())

    def _permit(self, principal: Principal, spec: JobSpec, manifest: Manifest, plan: str) -> None:
        """Asks the policy whether this job may run. Raises :class:`PolicyDenied` if it says no."""
        context: dict[str, str | int | bool] = {
            "plan": plan,
            "role": spec.role or "",
            "level": manifest.level,
            "image": manifest.image,
            "timeout_s": math.ceil(manifest.limits.timeout_s),
            "memory_bytes": manifest.limits.memory_bytes,
            "retries": manifest.retries,
        }
        decision = self._policy.decide(Question(principal, RUN, spec.tenant, context))
        if not decision.allowed:
            why = ", ".join(decision.reasons) or "no policy permits it"
            raise PolicyDenied(RUN, f"denied for tenant {spec.tenant!r}: {why}")

    def estimate(
        self, spec: JobSpec, principal: Principal = PRODUCER, parent: Parent | None = None
    ) -> Estimate:
        """The most the job can cost, by its plan and prices; without a plan, by the prices alone."""
        spec = self._adopted(spec, parent)
        entitled = self._plans.entitled(spec, keyed=principal.key_id is not None, nested=parent is not None)
        return self._priced(spec, parent, entitled)[1]

    def _adopted(self, spec: JobSpec, parent: Parent | None) -> JobSpec:
        if parent is not None:
            return parent.adopted(spec, self._settings)
        if spec.parent is not None:
            raise InvalidJob("parent", "only jobs of a fleet have one; set CELLBLOCK_REDIS_URL")
        return spec

    def _priced(
        self, spec: JobSpec, parent: Parent | None, entitled: Entitled | None
    ) -> tuple[Manifest, Estimate]:
        asked = spec
        if entitled is not None:
            spec = entitled.granted(asked)
        elif spec.max_cost_micros is not None or spec.nested_cost_micros:
            field = "max_cost_micros" if spec.max_cost_micros is not None else "nested_cost_micros"
            raise InvalidJob(
                field, "only a job with a plan has a price: name one, or set CELLBLOCK_PLANS_DEFAULT"
            )
        if parent is not None:
            spec = parent.narrowed(spec, asked, self._settings)
        manifest = resolve(spec, self._settings)
        if parent is not None:
            manifest = manifest.model_copy(
                update={"parent": parent.job_id, "depth": parent.manifest.depth + 1}
            )
        limits = manifest.limits
        bounds = CostFactors(
            level=spec.level,
            timeout_s=limits.timeout_s,
            cpus=limits.cpus,
            memory_bytes=limits.memory_bytes,
            runs=1 + spec.retries if spec.evaluation is None else spec.evaluation.runs,
            nested_micros=spec.nested_cost_micros,
        )
        caps = [("max_cost_micros", spec.max_cost_micros)]
        if entitled is not None and parent is not None:
            caps.append(("half of what its parent has left", parent.cost_cap(spec)))
        if entitled is not None:
            caps.append(("cost_per_run", entitled.plan.cost_per_run_micros))
            if parent is None:
                caps.append(("cost_per_day", entitled.plan.cost_per_day_micros))
        return manifest, estimate(bounds, self._plans.prices, *caps)


def check_key(principal: Principal, spec: JobSpec) -> None:
    """Checks the limits of an API key. They hold under every policy, and come before all checks of plans."""
    if principal.key_id is None:
        return
    if principal.tenant != spec.tenant:
        raise PolicyDenied(
            "tenant", f"the API key belongs to tenant {principal.tenant!r}, not {spec.tenant!r}"
        )
    if RUN not in principal.capabilities:
        raise PolicyDenied("api_key", f"it does not carry {RUN}")
