#!/usr/bin/env bash
# Promises: on Debian 12 or newer every program cellblock needs on the host is installed afterwards, and no service
# was started by installing it. Elsewhere, or without root and sudo: prints what is missing and ends with 2.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

# What must answer, and the Debian package that brings it.
needed=(
  dockerd:docker.io docker:docker.io runsc:runsc redis-server:redis-server redis-cli:redis-tools
  mmdebstrap:mmdebstrap docker-compose:docker-compose iptables:iptables ip:iproute2 flock:util-linux
  python3:python3 chromium:chromium postgres:postgresql
)

is_there() {
  case $1 in
    python3) python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ;;
    postgres) compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null ;; # Debian keeps it out of PATH
    *) command -v "$1" >/dev/null ;;
  esac
}

missing=() packages=()
for pair in "${needed[@]}"; do
  if is_there "${pair%%:*}"; then continue; fi
  missing+=("${pair%%:*}")
  packages+=("${pair#*:}")
  # Debian 13 ships the client apart, and venv is apart everywhere.
  case ${pair%%:*} in
    docker) if apt-cache show docker-cli >/dev/null 2>&1; then packages+=(docker-cli); fi ;;
    python3) packages+=(python3-venv) ;;
  esac
done

if [[ ${#packages[@]} -gt 0 ]]; then mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u); fi

if [[ ${#missing[@]} -eq 0 ]]; then
  echo 'setup: every program is there'
  exit 0
fi

give_up() {
  {
    printf 'setup: %s\n' "$1"
    printf 'setup: missing programs: %s\n' "${missing[*]}"
    printf 'setup: Debian packages:  %s\n' "${packages[*]}"
  } >&2
  exit 2
}

# shellcheck disable=SC1091  # the system's own file
debian_version() { (. /etc/os-release 2>/dev/null && [[ ${ID:-} == debian ]] && echo "${VERSION_ID:-99}") || echo 0; }

as_root=()
if [[ $(debian_version) -lt 12 ]]; then give_up 'this is not Debian 12 or newer: install these yourself, then run it again'; fi
if [[ $EUID -ne 0 ]]; then
  sudo -n true 2>/dev/null || give_up 'not root, and sudo asks for a password: install these yourself, then run it again'
  as_root=(sudo -n)
fi
root() { ${as_root[@]+"${as_root[@]}"} "$@"; }

# Debian starts a service as it is installed unless policy-rc.d answers 101. One that is there is put back afterwards.
policy=/usr/sbin/policy-rc.d
kept=
forbid_start() {
  if root test -e "$policy"; then
    kept=$policy.cellblock
    root mv "$policy" "$kept"
  fi
  printf '#!/bin/sh\nexit 101\n' | root tee "$policy" >/dev/null
  root chmod 755 "$policy"
}
allow_start() {
  if [[ -n $kept ]]; then root mv "$kept" "$policy"; else root rm -f "$policy"; fi
}

printf 'setup: installing %s\n' "${packages[*]}"
trap allow_start EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
forbid_start
root apt-get -qq update
root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends -qq "${packages[@]}" >/dev/null
echo 'setup: done'
