#!/usr/bin/env bash
# Promises: every module of the standard library has its bytecode, trusted without a look at the source's time,
# so Python starts as quickly from a read-only root. Runs inside the root being made.
set -euo pipefail
rm -rf /usr/share/python3 /usr/bin/py3compile /usr/bin/py3clean /usr/bin/py3versions /usr/lib/python3.11/EXTERNALLY-MANAGED
rm -rf /usr/lib/python3/dist-packages/pkg_resources  # a dependency of pytest's package that nothing of it imports
find /usr/lib/python3 /usr/lib/python3.11 -name '__pycache__' -prune -exec rm -rf {} +
python3 -m compileall -q -j 2 --invalidation-mode unchecked-hash /usr/lib/python3 /usr/lib/python3.11
