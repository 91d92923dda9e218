#!/usr/bin/env bash
# Promises: rewrites the three lock files below images/ with the current releases, every line pinned by hash,
# wheels only, and naming no index. The worker's lock stays inside the repository's requirements.lock.
# Needs: LOCKER, a pip-compile (default: the one in .venv).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

locker=${LOCKER:-.venv/bin/pip-compile}
flags=(--quiet --upgrade --generate-hashes --strip-extras --no-header --no-emit-index-url --no-emit-find-links
  --no-emit-trusted-host --no-emit-options --pip-args '--only-binary=:all:')

"$locker" "${flags[@]}" --output-file images/datascience/requirements.lock images/datascience/requirements.in
"$locker" "${flags[@]}" --output-file images/compat/requirements.lock images/compat/requirements.in
"$locker" "${flags[@]}" --extra archive --extra monitor --extra signing --extra worker --constraint requirements.lock \
  --output-file images/worker/requirements.lock pyproject.toml images/worker/requirements.in
