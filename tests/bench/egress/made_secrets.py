"""Secrets of the forms in which services and tools issue them, made anew from a seed on every run.

Written from the issuers' formats as they are seen in the wild, and not from the filter's rules: what this
finds missing is the measurement. Nothing here is a secret; the marks that secret scanners look for come
together only at run time.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass

from bench.egress import made_files
from bench.egress.disguises import encodings, survives

__all__ = ["MadeSecret", "encodings", "fill", "secrets", "survives"]

LETTERS, DIGITS = string.ascii_letters, string.digits
#: What stands in a template as <A36>: 36 of these.
ALPHABETS = {
    "A": LETTERS + DIGITS,
    "a": string.ascii_lowercase + DIGITS,
    "U": string.ascii_uppercase + DIGITS,
    "h": "0123456789abcdef",
    "H": "0123456789ABCDEF",
    "d": DIGITS,
    "l": string.ascii_lowercase,
    "L": string.ascii_uppercase,
    "M": LETTERS,
    "B": LETTERS + DIGITS + "+/",
    "u": LETTERS + DIGITS + "_-",
    "2": string.ascii_uppercase + "234567",
    "c": "qpzry9x8gf2tvdw0s3jn54khce6mua7l",
    "p": LETTERS + DIGITS + "!@#$^*_-+=~",
}
#: Tokens that tell by themselves what they are: the name of a variable that holds one, and the token's form.
TOKENS = {
    "aws-access-key-id": ("AWS_ACCESS_KEY_ID", "AKIA<2:16>"),
    "aws-temporary-key-id": ("aws_access_key_id", "ASIA<2:16>"),
    "gcp-api-key": ("GOOGLE_API_KEY", "AIza<u35>"),
    "google-oauth-access": ("access_token", "ya29.a0<u180>"),
    "google-oauth-client": ("GOOGLE_CLIENT_SECRET", "GOCSPX-<u28>"),
    "azure-client-secret": ("AZURE_CLIENT_SECRET", "<A3>8Q~<u31>"),
    "github-personal": ("GITHUB_TOKEN", "ghp_<A36>"),
    "github-oauth": ("GH_TOKEN", "gho_<A36>"),
    "github-user": ("GH_TOKEN", "ghu_<A36>"),
    "github-server": ("GITHUB_TOKEN", "ghs_<A36>"),
    "github-refresh": ("refresh_token", "ghr_<A76>"),
    "github-fine-grained": ("GITHUB_PAT", "github_pat_<A22>_<A59>"),
    "gitlab-personal": ("GITLAB_TOKEN", "glpat-<u20>"),
    "gitlab-runner": ("RUNNER_TOKEN", "glrt-<u20>"),
    "gitlab-deploy": ("CI_DEPLOY_PASSWORD", "gldt-<u20>"),
    "gitlab-job": ("CI_JOB_TOKEN", "glcbt-<h2>_<u20>"),
    "gitlab-trigger": ("TRIGGER", "glptt-<h40>"),
    "gitlab-feed": ("FEED", "glft-<u20>"),
    "bitbucket": ("BITBUCKET_APP_PASSWORD", "ATBB<A32><H8>"),
    "slack-bot": ("SLACK_BOT_TOKEN", "xoxb-<d12>-<d13>-<A24>"),
    "slack-user": ("SLACK_TOKEN", "xoxp-<d12>-<d12>-<d13>-<h32>"),
    "slack-legacy": ("SLACK_TOKEN", "xoxa-2-<d12>-<d12>-<h32>"),
    "slack-app": ("SLACK_APP_TOKEN", "xapp-1-A<U10>-<d13>-<h64>"),
    "slack-refresh": ("refresh", "xoxe-1-<A146>"),
    "slack-webhook": ("SLACK_WEBHOOK", "https://hooks.slack.com/services/T<U10>/B<U10>/<A24>"),
    "teams-webhook": (
        "WEBHOOK",
        "https://acme.webhook.office.com/webhookb2/<uuid>@<uuid>/IncomingWebhook/<h32>/<uuid>",
    ),
    "discord-bot": ("DISCORD_TOKEN", "MT<A24>.G<A5>.<u38>"),
    "discord-webhook": ("url", "https://discord.com/api/webhooks/<d18>/<u68>"),
    "telegram-bot": ("TELEGRAM_BOT_TOKEN", "<d10>:AA<u33>"),
    "twilio-key": ("TWILIO_API_KEY", "SK<h32>"),
    "sendgrid": ("SENDGRID_API_KEY", "SG.<u22>.<u43>"),
    "mailgun": ("MAILGUN_API_KEY", "key-<h32>"),
    "mailchimp": ("MAILCHIMP_API_KEY", "<h32>-us1<d1>"),
    "brevo": ("BREVO_API_KEY", "xkeysib-<h64>-<A16>"),
    "stripe-secret": ("STRIPE_SECRET_KEY", "sk_live_<A24>"),
    "stripe-secret-long": ("STRIPE_API_KEY", "sk_live_51<A97>"),
    "stripe-restricted": ("STRIPE_KEY", "rk_live_<A24>"),
    "stripe-webhook": ("STRIPE_WEBHOOK_SECRET", "whsec_<A32>"),
    "square-access": ("SQUARE_ACCESS_TOKEN", "EAAA<u60>"),
    "square-oauth": ("SQUARE_SECRET", "sq0csp-<u43>"),
    "braintree": ("BRAINTREE_ACCESS_TOKEN", "access_token$production$<a16>$<h32>"),
    "shopify-admin": ("SHOPIFY_TOKEN", "shpat_<h32>"),
    "shopify-shared": ("SHOPIFY_API_SECRET", "shpss_<h32>"),
    "shopify-private": ("SHOPIFY_PASSWORD", "shppa_<h32>"),
    "openai-legacy": ("OPENAI_API_KEY", "sk-<A20>T3BlbkFJ<A20>"),
    "openai-project": ("OPENAI_API_KEY", "sk-proj-<u74>T3BlbkFJ<u74>"),
    "anthropic": ("ANTHROPIC_API_KEY", "sk-ant-api03-<u93>AA"),
    "anthropic-admin": ("ANTHROPIC_ADMIN_KEY", "sk-ant-admin01-<u93>AA"),
    "openrouter": ("OPENROUTER_API_KEY", "sk-or-v1-<h64>"),
    "deepseek": ("DEEPSEEK_API_KEY", "sk-<h32>"),
    "huggingface": ("HF_TOKEN", "hf_<M34>"),
    "replicate": ("REPLICATE_API_TOKEN", "r8_<A37>"),
    "groq": ("GROQ_API_KEY", "gsk_<A52>"),
    "perplexity": ("PPLX_API_KEY", "pplx-<A48>"),
    "xai": ("XAI_API_KEY", "xai-<A80>"),
    "langsmith": ("LANGSMITH_API_KEY", "lsv2_pt_<h32>_<h10>"),
    "databricks": ("DATABRICKS_TOKEN", "dapi<h32>"),
    "npm": ("NPM_TOKEN", "npm_<A36>"),
    "pypi": ("TWINE_PASSWORD", "pypi-AgEIcHlwaS5vcmcCJ<u150>"),
    "rubygems": ("GEM_HOST_API_KEY", "rubygems_<h48>"),
    "docker-hub": ("DOCKER_PAT", "dckr_pat_<u27>"),
    "crates-io": ("CARGO_REGISTRY_TOKEN", "cio<A32>"),
    "nuget": ("NUGET_API_KEY", "oy2<a43>"),
    "clojars": ("CLOJARS_PASSWORD", "CLOJARS_<h60>"),
    "digitalocean": ("DIGITALOCEAN_TOKEN", "dop_v1_<h64>"),
    "digitalocean-oauth": ("DO_TOKEN", "doo_v1_<h64>"),
    "heroku": ("HEROKU_API_KEY", "HRKU-AA<u58>"),
    "fly-io": ("FLY_API_TOKEN", "FlyV1 fm2_<B300>"),
    "vercel": ("VERCEL_TOKEN", "vcp_<A56>"),
    "netlify": ("NETLIFY_AUTH_TOKEN", "nfp_<A40>"),
    "cloudflare-origin": ("CF_ORIGIN_KEY", "v1.0-<h24>-<h146>"),
    "supabase": ("SUPABASE_ACCESS_TOKEN", "sbp_<h40>"),
    "planetscale": ("PLANETSCALE_TOKEN", "pscale_tkn_<u43>"),
    "vault-service": ("VAULT_TOKEN", "hvs.<u95>"),
    "vault-batch": ("VAULT_TOKEN", "hvb.<u150>"),
    "vault-old": ("VAULT_TOKEN", "s.<A24>"),
    "terraform-cloud": ("TFE_TOKEN", "<A14>.atlasv1.<A67>"),
    "pulumi": ("PULUMI_ACCESS_TOKEN", "pul-<h40>"),
    "doppler": ("DOPPLER_TOKEN", "dp.pt.<A43>"),
    "onepassword-service": ("OP_SERVICE_ACCOUNT_TOKEN", "ops_eyJ<A350>"),
    "tailscale": ("TS_AUTHKEY", "tskey-auth-k<A16>CNTRL-<A32>"),
    "grafana-service": ("GRAFANA_TOKEN", "glsa_<A32>_<h8>"),
    "grafana-cloud": ("GRAFANA_CLOUD", "glc_eyJvIjoi<B110>="),
    "new-relic": ("NEW_RELIC_API_KEY", "NRAK-<U27>"),
    "sentry-org": ("SENTRY_AUTH_TOKEN", "sntrys_eyJpYXQiOj<B150>=_<B43>"),
    "sentry-user": ("SENTRY_AUTH_TOKEN", "sntryu_<h64>"),
    "linear": ("LINEAR_API_KEY", "lin_api_<A40>"),
    "notion": ("NOTION_TOKEN", "ntn_<d11><A35>"),
    "notion-old": ("NOTION_TOKEN", "secret_<A43>"),
    "airtable": ("AIRTABLE_TOKEN", "pat<A14>.<h64>"),
    "atlassian": ("JIRA_API_TOKEN", "ATATT3xFfGF0<u174>=<H8>"),
    "figma": ("FIGMA_TOKEN", "figd_<u40>"),
    "dropbox": ("DROPBOX_TOKEN", "sl.B<u135>"),
    "hubspot": ("HUBSPOT_TOKEN", "pat-na1-<uuid>"),
    "postman": ("POSTMAN_API_KEY", "PMAK-<h24>-<h34>"),
    "contentful": ("CONTENTFUL_TOKEN", "CFPAT-<u43>"),
    "circleci": ("CIRCLE_TOKEN", "CCIPAT_<A22>_<h40>"),
    "age": ("key", "AGE-SECRET-KEY-1<C58>"),
}
SHOWN_AS = (
    "{name}={token}",
    "export {name}='{token}'",
    '{name} = "{token}"',
    '  "{name}": "{token}",',
    "{name}: {token}",
    "{token}",
    "using token {token} from the environment",
    "remote: Invalid credentials {token}",
    "$ client login --token {token}",
    "environ({{'HOME': '/root', '{name}': '{token}', 'LANG': 'C.UTF-8'}})",
)


@dataclass(frozen=True)
class MadeSecret:
    """One, as it would be printed."""

    kind: str
    text: str
    core: str  #: the part of ``text`` that must not survive
    marked: bool  #: whether the core alone still tells what it is


def secrets(rng: random.Random) -> Iterator[MadeSecret]:
    """One of every kind, different for every state of ``rng``."""
    for kind, (name, form) in TOKENS.items():
        token = fill(rng, form)
        yield MadeSecret(kind, rng.choice(SHOWN_AS).format(name=name, token=token), token, True)
    for kind, forms in made_files.FORMS.items():
        text = fill(rng, forms if isinstance(forms, str) else rng.choice(forms))
        before, core, after = re.split("[«»]", text)
        yield MadeSecret(kind, before + core + after, core, False)
    for kind, make in made_files.MADE.items():
        text, core = make(rng)
        yield MadeSecret(kind, text, core, kind in made_files.MARKED)


def fill(rng: random.Random, form: str) -> str:
    """A template with every <A36> made."""

    def made(match: re.Match[str]) -> str:
        what, count = match[1], int(match[2] or 1)
        if what == "uuid":
            return "-".join(fill(rng, f"<h{n}>") for n in (8, 4, 4, 4, 12))
        if what == "word":
            return rng.choice(made_files.WORDS)
        if what == "human":
            return made_files.human_password(rng)
        if what == "C":
            return "".join(rng.choices(ALPHABETS["c"].upper(), k=count))
        return "".join(rng.choices(ALPHABETS[what], k=count))

    return re.sub(r"<(uuid|word|human|[A-Za-z2]):?(\d*)>", made, form)
