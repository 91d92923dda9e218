"""Secrets that are known by their form: issuer, beginning and alphabet.

These are our own rules, because the known rule sets do not fit a filter that has a few milliseconds: those
for scanners of repositories use expressions of other engines (borders and classes differ from ``re``), read
one line at a time, and are tuned to find names in source code (docs/adr/0013 has the figures). Each rule here
has a literal, so that a text without it costs one search in C. Each runs in time linear in its text: every
repetition is of one class, and none is inside another.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cache

_WORD = r"A-Za-z0-9_\-"
_ALNUM = "A-Za-z0-9"
_HEX = "0-9a-f"


@dataclass(frozen=True, slots=True)
class Rule:
    """One form of secret. ``pattern`` finds it within other text; the whole match is the secret.

    ``mixed``: the text after the literal must look drawn at random, because the literal alone is common.
    ``border``: it begins with its literal, and a letter or digit must not stand before it.
    """

    kind: str
    literal: str
    expression: str
    mixed: bool = False
    border: bool = True

    @property
    def weak(self) -> bool:
        """Whether its literal is so short or plain that text contains it by chance."""
        return self.mixed or len(self.literal) < 4 or not any(c in "_-" for c in self.literal)

    @property
    def pattern(self) -> re.Pattern[str]:
        """The expression, compiled when a text first has the literal: most are never needed."""
        return _compiled(self.expression)


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


def _token(kind: str, literal: str, body: str, *, mixed: bool = False) -> Rule:
    """The rule for a literal and the text after it. ``body``: an expression."""
    return Rule(kind, literal, re.escape(literal) + body, mixed)


def _around(kind: str, literal: str, expression: str, *, mixed: bool = False) -> Rule:
    """The rule for a form whose literal is not its beginning."""
    return Rule(kind, literal, expression, mixed, border=False)


def _some(alphabet: str, least: int, most: int | None = None) -> str:
    return f"[{alphabet}]{{{least},{'' if most is None else most}}}"


def _family(kind: str, literals: str, body: str) -> list[Rule]:
    return [_token(kind, literal, body) for literal in literals.split()]


_CLOUD = [
    *_family("aws_access_key", "AKIA ASIA", _some("A-Z2-7", 16, 17)),
    *(_token("aws_access_key", literal, _some("A-Z2-7", 16, 17), mixed=True) for literal in ("ABIA", "ACCA")),
    *_family("aws_session_token", "IQoJb3JpZ2lu FwoGZXIvYXdz FQoGZXIvYXdz", _some("A-Za-z0-9+/=", 60)),
    _token("gcp_api_key", "AIza", _some(_WORD, 35, 36)),
    _token("google_oauth_token", "ya29.", _some(_WORD + ".", 20)),
    _token("google_oauth_secret", "GOCSPX-", _some(_WORD, 24)),
    _token("google_refresh_token", "1//0", _some(_WORD, 40)),
    _token("azure_storage_key", "AccountKey=", _some("A-Za-z0-9+/", 40) + "={0,2}"),
    _token("azure_shared_key", "SharedAccessKey=", _some("A-Za-z0-9+/", 40) + "={0,2}"),
    _around("aws_signature", "X-Amz-Signature=", r"(?<=X-Amz-Signature=)[0-9a-f]{64}"),
    _around("aws_session_token", "Security-Token=", r"(?<=Security-Token=)[A-Za-z0-9%+/=]{60,}"),
    _around("google_signature", "X-Goog-Signature=", r"(?<=X-Goog-Signature=)[0-9a-f]{100,}"),
    _around("azure_sas", "sig=", r"(?<=[?&;])sig=[A-Za-z0-9%+/_-]{40,}={0,2}"),
    *(
        _around("azure_client_secret", q, rf"[A-Za-z0-9_~.-]{{3}}{q}[A-Za-z0-9_~.-]{{31,34}}")
        for q in ("8Q~", "7Q~")
    ),
    *_family("alibaba_access_key", "LTAI", _some(_ALNUM, 16, 26)),
    *_family("tencent_secret_id", "AKID", _some(_ALNUM, 32, 40)),
    *_family("yandex_key", "AQVN y0_", _some(_WORD, 35)),
    *_family("digitalocean_token", "dop_v1_ doo_v1_ dor_v1_", _some(_HEX, 60)),
    *_family("heroku_key", "HRKU-", _some(_WORD, 30)),
    *_family("fly_token", "fo1_ fm1_ fm1r_ fm1a_ fm2_", _some("A-Za-z0-9_+/=-", 40)),
    *_family("vercel_token", "vcp_ vci_ vca_ vcr_ vck_ vercel_", _some(_ALNUM, 24)),
    *_family("netlify_token", "nfp_ nfc_ nfo_ nfu_", _some(_ALNUM, 36)),
    _token("cloudflare_origin_key", "v1.0-", _some(_HEX, 20) + "-" + _some(_HEX, 100)),
    *_family("cloudflare_token", "cfut_ cfat_ cfk_", _some(_WORD, 36)),
    *_family("supabase_key", "sbp_ sb_secret_ sbs_", _some(_WORD, 24)),
    *_family("planetscale_token", "pscale_tkn_ pscale_oauth_ pscale_pw_", _some(_WORD + ".=", 30)),
    *_family("neon_key", "napi_", _some(_ALNUM, 40)),
    *_family("render_key", "rnd_", _some(_ALNUM, 28)),
    *_family("scaleway_key", "SCW", _some("A-Z0-9", 17, 17)),
    *_family("linode_token", "LIN_", _some(_ALNUM, 40)),
    *_family("oci_key", "ocid1.credential.", _some(_WORD + ".", 30)),
]

_HOSTING = [
    *_family("github_token", "ghp_ gho_ ghu_ ghs_ ghr_", _some("A-Za-z0-9_", 30)),
    _token("github_token", "github_pat_", _some("A-Za-z0-9_", 22)),
    *_family(
        "gitlab_token",
        "glpat- glptt- glrt- glrtr- gldt- glcbt- glft- glimt- gloas- glsoat- glagent- glwt- GR1348941",
        _some(_WORD + ".", 20),
    ),
    *_family("bitbucket_token", "ATBB ATCTT3xFfG", _some(_WORD + "=", 28)),
    *_family("atlassian_token", "ATATT3xFfG ATATT3 ATSTT3", _some(_WORD + "=", 50)),
    *_family("trello_token", "ATTA", _some(_HEX, 60)),
    *_family("sourcegraph_token", "sgp_", _some("A-Za-z0-9_", 40)),
    *_family("npm_token", "npm_", _some(_ALNUM, 30)),
    *_family("pypi_token", "pypi-AgE pypi-AgN", _some(_WORD, 40)),
    *_family("rubygems_token", "rubygems_", _some(_HEX, 40)),
    *_family("docker_token", "dckr_pat_ dckr_oat_", _some(_WORD, 20)),
    _token("crates_token", "cio", _some(_ALNUM, 32, 33), mixed=True),
    _token("nuget_key", "oy2", _some("a-z0-9", 43, 43)),
    *_family("clojars_token", "CLOJARS_", _some(_HEX, 50)),
    *_family("artifactory_token", "AKCp cmVmdGtuO", _some(_ALNUM, 40)),
    *_family("circleci_token", "CCIPAT_ CCIPRJ_", _some("A-Za-z0-9_", 40)),
    *_family("buildkite_token", "bkua_ bkaa_ bkct_", _some(_ALNUM, 36)),
    *_family("terraform_token", "tfp_ tfc_", _some(_ALNUM, 40)),
    _around("terraform_token", ".atlasv1.", rf"{_some(_ALNUM, 14, 14)}\.atlasv1\.{_some(_WORD, 40)}"),
    *_family("pulumi_token", "pul-", _some(_HEX, 40)),
    *_family("prefect_key", "pnu_ pnb_", _some(_ALNUM, 36)),
    *_family("postman_key", "PMAK-", _some(_HEX, 24) + "-" + _some(_HEX, 34)),
]

_CHAT = [
    *_family(
        "slack_token",
        "xoxb- xoxp- xoxa- xoxr- xoxs- xoxo- xoxe- xoxc- xoxd- xoxe.xox",
        _some(_WORD + "%.", 20),
    ),
    *_family("slack_token", "xapp- xwfp-", _some(_WORD, 30)),
    _token("slack_webhook", "hooks.slack.com/", r"(?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,}"),
    _around(
        "discord_webhook", "/api/webhooks/", r"discord(?:app)?\.com/api/webhooks/\d{15,21}/[A-Za-z0-9_-]{40,}"
    ),
    _around("teams_webhook", ".webhook.office.com/", r"\.webhook\.office\.com/[A-Za-z0-9/@_-]{60,}"),
    _around(
        "discord_token",
        ".",
        r"[MNO](?<![A-Za-z0-9_.-].)[A-Za-z0-9_-]{22,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,45}(?![A-Za-z0-9_.-])",
    ),
    _around("telegram_token", ":AA", r"(?<!\d)\d{8,10}:AA[A-Za-z0-9_-]{30,35}", mixed=True),
    *_family("twilio_key", "SK", _some(_HEX, 32, 32)),
    *_family("sendgrid_key", "SG.", _some(_WORD, 16) + r"\." + _some(_WORD, 16)),
    *_family("mailgun_key", "key- pubkey-", _some(_HEX, 32, 32)),
    _around("mailchimp_key", "-us", r"(?<![0-9a-f])[0-9a-f]{32}-us\d{1,2}(?!\d)"),
    *_family("brevo_key", "xkeysib- xsmtpsib-", _some(_HEX, 40) + _some(_WORD, 0)),
    *_family("resend_key", "re_", r"[A-Za-z0-9]{8}_[A-Za-z0-9]{24}"),
]

_MONEY = [
    *_family("stripe_key", "sk_live_ sk_test_ rk_live_ rk_test_ sk_org_ whsec_", _some("A-Za-z0-9_+/=", 16)),
    *_family("square_token", "sq0atp- sq0csp- sq0idp-", _some(_WORD, 22)),
    _token("square_token", "EAAA", _some(_WORD, 58, 64), mixed=True),
    _around(
        "paypal_token", "access_token$", r"access_token\$(?:production|sandbox)\$[0-9a-z]{16}\$[0-9a-f]{32}"
    ),
    *_family("shopify_token", "shpat_ shpca_ shppa_ shpss_ shptka_", "[0-9A-Fa-f]{32,}"),
    *_family("flutterwave_key", "FLWSECK-", _some(_WORD, 32)),
    *_family("easypost_key", "EZAK EZTK", _some(_ALNUM, 54)),
    *_family("coinbase_key", "organizations/", r"[0-9a-f-]{36}/apiKeys/[0-9a-f-]{36}"),
    *_family("plaid_token", "access-production- access-sandbox- access-development-", r"[0-9a-f-]{36}"),
    *_family("razorpay_key", "rzp_live_ rzp_test_", _some(_ALNUM, 14)),
]

_MODELS = [
    *_family("openai_key", "sk-proj- sk-svcacct- sk-admin- sk-service- sk-None-", _some(_WORD, 24)),
    _around("openai_key", "T3BlbkFJ", rf"sk-{_some(_WORD, 10)}"),
    _token("anthropic_key", "sk-ant-", _some(_WORD, 24)),
    _token("openrouter_key", "sk-or-", _some(_WORD, 30)),
    _token("langfuse_key", "sk-lf-", _some(_WORD, 30)),
    _token("model_key", "sk-", _some(_ALNUM, 24), mixed=True),
    *_family("huggingface_token", "hf_ api_org_", _some(_ALNUM, 30)),
    *_family("replicate_token", "r8_", _some(_ALNUM, 30)),
    *_family("groq_key", "gsk_", _some(_ALNUM, 40)),
    *_family("perplexity_key", "pplx-", _some(_ALNUM, 36)),
    *_family("xai_key", "xai-", _some(_ALNUM, 60)),
    *_family("fireworks_key", "fw_", _some(_ALNUM, 22)),
    *_family("together_key", "tgp_v1_", _some(_WORD, 30)),
    *_family("nvidia_key", "nvapi-", _some(_WORD, 40)),
    *_family("cerebras_key", "csk-", _some(_ALNUM, 40)),
    _token("voyage_key", "pa-", _some(_WORD, 43, 46), mixed=True),
    *_family("tavily_key", "tvly-", _some(_WORD, 28)),
    *_family("firecrawl_key", "fc-", _some(_HEX, 32, 32)),
    *_family("pinecone_key", "pcsk_", _some("A-Za-z0-9_", 40)),
    *_family("langsmith_key", "lsv2_pt_ lsv2_sk_", _some("A-Za-z0-9_", 36)),
    *_family("wandb_key", "wandb_v1_", _some("A-Za-z0-9_", 40)),
    *_family("elevenlabs_key", "sk_", _some(_HEX, 44, 52)),
    *_family("jina_key", "jina_", _some(_WORD, 50)),
    *_family("databricks_token", "dapi", _some(_HEX, 32) + r"(?:-\d)?"),
    *_family("dashscope_key", "LLM-", _some(_ALNUM, 36)),
]

_SERVICES = [
    *_family("vault_token", "hvs. hvb. hvr.", _some(_WORD, 20)),
    _token("vault_token", "s.", _some(_ALNUM, 24, 26), mixed=True),
    *_family("doppler_token", "dp.pt. dp.st. dp.ct. dp.scim. dp.audit. dp.sa.", _some(_WORD + ".", 36)),
    *_family("onepassword_token", "ops_eyJ", _some(_WORD + "=", 100)),
    _token("onepassword_key", "A3-", r"[A-Z0-9]{6}-(?:[A-Z0-9]{5,6}-){3,4}[A-Z0-9]{5}"),
    *_family("infisical_token", "st.", r"[0-9a-f]{24}\.[0-9a-f]{32}\.[0-9a-f]{32}"),
    *_family("grafana_token", "glsa_ glc_", _some("A-Za-z0-9_+/=", 32)),
    *_family("newrelic_key", "NRAK- NRJS- NRII- NRIQ- NRRA- NRSP- NRAL-", _some(_WORD, 18)),
    *_family("dynatrace_token", "dt0c01. dt0s01. dt0s02. dt0s08. dt0s16.", r"[A-Z0-9]{20,}\.[A-Z0-9]{50,}"),
    *_family("sentry_token", "sntrys_ sntryu_ sntryi_", _some(_WORD + "=+/", 40)),
    *_family("posthog_key", "phx_ phs_", _some(_ALNUM, 38)),
    *_family("honeycomb_key", "hcaik_ hcxik_ hcalk_", _some(_ALNUM, 50)),
    *_family("linear_key", "lin_api_ lin_oauth_", _some(_ALNUM, 32)),
    *_family("notion_token", "ntn_ secret_", _some(_ALNUM, 40)),
    _token("airtable_token", "pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    *_family("hubspot_token", "pat-na1- pat-na2- pat-eu1- pat-ap1-", r"[0-9a-f-]{36}"),
    *_family("figma_token", "figd_ figo_ figu_ figor_ figdr_", _some(_WORD, 36)),
    *_family("dropbox_token", "sl. sl.u.", _some(_WORD, 60)),
    *_family("facebook_token", "EAAC EAAD EAAG EAAB EAAM EAAI EAAJ", _some(_ALNUM, 60)),
    _token("twitter_bearer", "AAAAAAAAAAAAAAAAAAAAA", _some(_ALNUM + "%", 40), mixed=True),
    *_family("contentful_token", "CFPAT-", _some(_WORD, 40)),
    *_family("tailscale_key", "tskey-", r"(?:auth|api|client|scim|webhook)-[A-Za-z0-9]{8,}-[A-Za-z0-9]{20,}"),
    *_family("adafruit_key", "aio_", _some(_ALNUM, 26, 30)),
    *_family("frameio_token", "fio-u-", _some(_WORD, 60)),
    *_family("readme_key", "rdme_", _some(_ALNUM, 60)),
    *_family("typeform_token", "tfp_", _some(_WORD + ".", 50)),
    *_family("asana_token", "2/", r"\d{10,}/\d{10,}:[0-9a-f]{32}"),
    *_family("firebase_key", "AAAA", r"[A-Za-z0-9_-]{7}:[A-Za-z0-9_-]{100,}"),
    *_family("zapier_hook", "hooks.zapier.com/hooks/catch/", r"\d{5,}/[A-Za-z0-9]{5,}"),
    *_family("confluent_secret", "cflt", _some("A-Za-z0-9+/", 56, 60)),
    *_family("snyk_token", "snyk_uat. snyk_sat.", _some(_WORD + ".", 40)),
    *_family("sonar_token", "sqp_ squ_ sqa_", _some(_HEX, 40)),
    _token("mapbox_token", "sk.eyJ", _some(_WORD + ".", 40)),
    *_family("persona_key", "persona_production_ persona_sandbox_", "[0-9a-f-]{36}"),
    *_family("runpod_key", "rpa_", _some(_ALNUM, 40)),
    *_family("zuplo_key", "zpka_", _some("0-9a-z_", 40)),
    *_family("shippo_token", "shippo_live_ shippo_test_", _some(_HEX, 40)),
    *_family("duffel_token", "duffel_live_ duffel_test_", _some(_WORD + "=", 43)),
    *_family("wakatime_key", "waka_", "[0-9a-f-]{36}"),
    *_family("mergify_key", "mka_", _some(_ALNUM, 40)),
    *_family("gocardless_token", "live_ sandbox_", _some(_WORD, 40)),
    *_family("elastic_token", "AAEAAWVsYXN0aWMv", _some("A-Za-z0-9+/=", 30)),
    *_family("intercom_token", "dG9rOj", _some("A-Za-z0-9+/=", 40)),
    *_family(
        "paserk",
        "k1.secret. k2.secret. k3.secret. k4.secret. k1.local. k2.local. k3.local. k4.local.",
        _some(_WORD, 40),
    ),
    *_family("nostr_key", "nsec1 ncryptsec1", _some("a-z0-9", 50)),
    *_family("age_key", "AGE-PLUGIN-", _some("A-Z0-9-", 30)),
    _token(
        "ansible_vault",
        "$ANSIBLE_VAULT;",
        r"[\d.]{1,6};[A-Z0-9]{3,12}(?:;[\w.-]{1,40})?\s{1,8}(?:[0-9a-f]{16,90}\s{0,8}){1,400}",
    ),
    _around(
        "tls_secret", "CLIENT_", r"CLIENT_(?:RANDOM|[A-Z_]*SECRET[A-Z_0-9]*) [0-9a-f]{64} [0-9a-f]{64,128}"
    ),
    _around("onion_key", "ED25519-V3:", r"ED25519-V3:[A-Za-z0-9+/]{80,}={0,2}"),
    *_family("ngrok_token", "ngrok-", _some("A-Za-z0-9_", 40)),
]

_KEYS = [
    _token("age_key", "AGE-SECRET-KEY-1", _some("A-Z0-9", 50, 60)),
    _around(
        "jwt",
        "eyJ",
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,}={0,2}\.(?:eyJ|ZXlK)[A-Za-z0-9_-]{8,}={0,2}\.[A-Za-z0-9_-]{8,}",
    ),
    _around(
        "jwt",
        "eyJ",
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{20,}"
        r"\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{16,}",
    ),
    _around(
        "password_hash",
        "$",
        r"\$(?:2[abxy]\$\d\d\$[./A-Za-z0-9]{53}|apr1\$[./A-Za-z0-9]{1,8}\$[./A-Za-z0-9]{22})",
    ),
    _around("password_hash", "$", r"\$[156]\$(?:rounds=\d{1,9}\$)?[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{22,86}"),
    _around("password_hash", "$argon2", r"\$argon2(?:id|i|d)\$[A-Za-z0-9=,$+/]{40,}"),
]

RULES: tuple[Rule, ...] = (*_CLOUD, *_HOSTING, *_CHAT, *_MONEY, *_MODELS, *_SERVICES, *_KEYS)


def begins_here(rule: Rule, text: str, start: int) -> bool:
    """Whether the match begins here and does not continue a run of characters before it."""
    before = text[start - 1 : start]
    if not rule.border or not before:
        return True
    if rule.literal.isalnum() and before in "+/_-":  # within base64
        return False
    return not before.isalnum()


def drawn_at_random(body: str) -> bool:
    """Whether this looks drawn at random: cases and digits change far more often than in names."""
    kinds = ["d" if c.isdigit() else "u" if c.isupper() else "l" for c in body if c.isalnum()]
    changes = sum(1 for before, after in itertools.pairwise(kinds) if before != after)
    return "d" in kinds and len(set(kinds)) > 1 and changes * 5 >= len(kinds)
