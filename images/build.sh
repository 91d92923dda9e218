#!/usr/bin/env bash
# Promises: when it ends with 0, the named images (default: base python datascience) exist and were made from
# the files as they are now. Quiet when nothing is to do. `--force` builds all the same (Debian's updates).
# The sandbox images among them also stand unpacked under CELLBLOCK_LAUNCHER_IMAGE_ROOTS, for launchers without Docker.
# BASE_FROM=IMAGE starts from a pulled Debian image instead of mmdebstrap; PYTHON names a Python with pip.
# Runs as root, as a user who may use Docker, or through sudo. See README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly suite=bookworm python_version=3.11 work=build/images
export DOCKER_BUILDKIT=0
as_root=()
base_from=${BASE_FROM:-}

say() { printf 'images: %s\n' "$*"; }
die() { printf 'images: %s\n' "$*" >&2; exit 4; }
# What a step says goes to a log, whose end is shown if the step fails. Bash has no errexit in a step run this way:
# a step of several commands says `|| return` itself.
logged() {
  local log=$work/$1.log
  shift
  "$@" 2>"$log" || { tail -n 20 "$log" >&2; exit 4; }
}
docker() { ${as_root[@]+"${as_root[@]}"} env DOCKER_BUILDKIT=0 docker "$@"; }

# --- what an image is made from -----------------------------------------------------------------------------

parent_of() {
  case $1 in
    base) ;;
    python | redis) echo base ;;
    datascience | worker | systemd) echo python ;;
    compat) echo datascience ;;
    *) printf 'images: unknown image %q (base python datascience compat worker redis systemd)\n' "$1" >&2; exit 2 ;;
  esac
}

input_files() {
  find "images/$1" -type f
  echo images/build.sh
  case $1 in
    base | python | redis | systemd) find images/debian -type f ;;
    worker)
      printf '%s\n' pyproject.toml README.md LICENSE
      find config/cellblock_config producer/cellblock workers/cellblock_workers -type f ! -name '*.pyc'
      ;;
  esac
}

# One hash over the image's own files, the way its root is made, and the hash of the image below it.
inputs_of() {
  local parent
  parent=$(parent_of "$1")
  {
    printf '%s\n' "$base_from"
    if [[ -n $parent ]]; then inputs_of "$parent"; fi
    input_files "$1" | LC_ALL=C sort | tr '\n' '\0' | xargs -0 sha256sum
  } | sha256sum | cut -d ' ' -f 1
}

is_fresh() {
  local label
  label=$(docker image inspect --format '{{index .Config.Labels "cellblock.inputs"}}' "cellblock/$1" 2>/dev/null) || return 1
  [[ $label == "$(inputs_of "$1")" ]]
}

# --- a root made of Debian packages: base, python, redis, systemd ----------------------------------------------------

packages_of() {
  local parent
  parent=$(parent_of "$1")
  if [[ -n $parent ]]; then packages_of "$parent"; fi
  grep -v '^#' "images/$1/packages"
}

# The host to test on keeps its package manager's traces, its login tools and its units.
prune_script() { if [[ $1 == systemd ]]; then echo /dev/null; else echo images/debian/prune.sh; fi; }
finish_script() { if [[ -f images/$1/finish.sh ]]; then echo "images/$1/finish.sh"; else echo /dev/null; fi; }

# The host's own Debian sources; on a newer Debian the same archives, asked for the suite the images are made of.
apt_sources() {
  # shellcheck disable=SC2016  # apt-get's own variables
  apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' |
    sed -E "s/ [a-z]+(-updates|-security)?$/ $suite\1/" | grep -E "$suite(-updates|-security)?$" |
    sort -u | sed 's/.*/deb & main/'
}

root_by_mmdebstrap() {
  local include sources
  include=$(packages_of "$1" | paste -sd ,)
  sources=$(apt_sources || true)
  if [[ -z $sources && ($EUID -eq 0 || -n ${as_root[*]-}) ]]; then
    ${as_root[@]+"${as_root[@]}"} apt-get -qq update
    sources=$(apt_sources || true)
  fi
  [[ -n $sources ]] || die "apt knows no Debian archive: run apt-get update, or set BASE_FROM=debian:$suite-slim"
  # shellcheck disable=SC2016  # "$1" is for mmdebstrap's own shell: the directory of the new root
  ${as_root[@]+"${as_root[@]}"} mmdebstrap --quiet --variant=essential --skip=cleanup/apt,cleanup/reproducible,chroot/start-stop-daemon --include="$include" \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --aptopt='APT::Install-Recommends "false"' \
    --hook-directory=/usr/share/mmdebstrap/hooks/merged-usr \
    --setup-hook='printf "Package: usrmerge\nPin: release *\nPin-Priority: -1\n" >"$1/etc/apt/preferences.d/no-perl"' \
    --customize-hook="copy-in $(finish_script "$1") /tmp" \
    --customize-hook='if [ -f "$1/tmp/finish.sh" ]; then chroot "$1" bash /tmp/finish.sh; fi' \
    --customize-hook="copy-in $(prune_script "$1") /tmp" \
    --customize-hook='if [ -f "$1/tmp/prune.sh" ]; then PRUNE_THIS_ROOT=yes chroot "$1" bash /tmp/prune.sh; fi' \
    --format=tar "$suite" - <<<"$sources"
}

root_by_dockerfile() {
  local context=$work/debian-$1 container
  mkdir -p "$context"
  cp images/debian/Dockerfile "$context/"
  cat "$(prune_script "$1")" >"$context/prune.sh"
  cat "$(finish_script "$1")" >"$context/finish.sh"
  docker build --quiet --force-rm --build-arg "BASE=$base_from" --build-arg "PACKAGES=$(packages_of "$1" | paste -sd ' ')" \
    --tag "cellblock/build-$1" "$context" >&2 || return
  container=$(docker create "cellblock/build-$1" true) || return
  docker export "$container" || return
  docker rm "$container" >/dev/null
  docker rmi "cellblock/build-$1" >/dev/null
}

build_root() {
  local root_by=root_by_mmdebstrap user=65534:65534 command='["bash"]'
  if [[ -n $base_from ]]; then root_by=root_by_dockerfile; fi
  case $1 in
    python) command='["python3"]' ;;
    redis) user=10002:10002 command='["redis-server"]' ;;
    systemd) user=0:0 command='["/sbin/init"]' ;;
  esac
  logged "$1" "$root_by" "$1" >"$work/$1.tar"
  docker import --change "LABEL cellblock.inputs=$(inputs_of "$1")" --change "USER $user" \
    --change 'ENV PATH=/usr/local/bin:/usr/bin:/bin' --change 'ENV LANG=C.UTF-8' --change 'WORKDIR /tmp' \
    --change "CMD $command" - "cellblock/$1" <"$work/$1.tar" >/dev/null
  rm -f "$work/$1.tar"
}

# --- python plus wheels: datascience, worker ----------------------------------------------------------------

host_python() {
  if [[ -n ${PYTHON:-} ]]; then echo "$PYTHON"; return; fi
  if [[ -x .venv/bin/python ]]; then echo .venv/bin/python; return; fi
  if [[ ! -x $work/venv/bin/python ]]; then python3 -m venv "$work/venv"; fi
  echo "$work/venv/bin/python"
}

# Wheels for the image's Python, whatever the host's is; every one checked against its hash.
unpack_wheels() {
  local lock=$1 target=$2 machine platforms=() glibc
  machine=$(uname -m)
  for glibc in 2_36 2_35 2_34 2_31 2_28 2_27 2_26 2_24 2_17 2_12 2_5; do platforms+=(--platform "manylinux_${glibc}_$machine"); done
  platforms+=(--platform "manylinux2014_$machine")
  "$(host_python)" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --only-binary=:all: --upgrade \
    --require-hashes --python-version "$python_version" --implementation cp --abi cp311 --abi abi3 --abi none "${platforms[@]}" \
    --target "$target" --requirement "$lock"
}

# Tests, type stubs, C headers and host-bound scripts are not needed to run.
strip_packages() {
  rm -rf "${1:?}/bin" "${1:?}/share"
  find "$1" -depth -type d -name tests -exec rm -rf {} +
  find "$1" -type f \( -name '*.pyi' -o -name '*.pxd' -o -name '*.pyx' -o -name '*.h' -o -name '*.a' \) -delete
  chmod -R u=rwX,go=rX "$1"
}

add_cellblock() {
  local context=$1 wheels=$1/wheel
  "$(host_python)" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$wheels" . || return
  "$(host_python)" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --upgrade \
    --python-version "$python_version" --only-binary=:all: --target "$context/site-packages" "$wheels"/cellblock-*.whl || return
  rm -rf "$wheels"
}

# pip's own scripts name the host's Python; these name the image's.
write_scripts() {
  mkdir -p "$1"
  printf '#!/usr/bin/python3\nimport sys\nfrom cellblock.cli import main\n\nsys.exit(main())\n' >"$1/cellblock"
  printf '#!/usr/bin/python3\nimport sys\nfrom celery.__main__ import main\n\nsys.exit(main())\n' >"$1/celery"
  chmod 755 "$1" "$1"/*
}

build_wheels() {
  local context=$work/$1
  rm -rf "$context"
  mkdir -p "$context"
  cp "images/$1/Dockerfile" "$context/"
  logged "$1" unpack_wheels "images/$1/requirements.lock" "$context/site-packages"
  if [[ $1 == worker ]]; then
    logged "$1" add_cellblock "$context"
    write_scripts "$context/bin"
    install -m 644 images/worker/health.py "$context/"
  fi
  strip_packages "$context/site-packages"
  logged "$1" docker build --quiet --force-rm --network none --label "cellblock.inputs=$(inputs_of "$1")" --tag "cellblock/$1" "$context" >/dev/null
  rm -rf "$context"
}

# --- what tests/compat runs: datascience plus CPython's tests and those of the wheels -------------------------

# Of the archive's Debian package the tests alone: the image has all else of that Python.
unpack_testsuite() {
  local sources
  sources=$(apt_sources) || return
  ${as_root[@]+"${as_root[@]}"} mmdebstrap --quiet --variant=extract --include=libpython3.11-testsuite \
    --aptopt='APT::Install-Recommends "false"' --format=tar "$suite" - <<<"$sources" |
    tar -x --no-same-owner -C "$1" --strip-components=4 --wildcards './usr/lib/python3.11/test/*' || return
  chmod -R u=rwX,go=rX "$1/test"
}

# Of the wheels of the parent only the folders that strip_packages takes away.
unpack_tests_of_wheels() {
  local wheels=$1/wheels
  unpack_wheels images/datascience/requirements.lock "$wheels" || return
  (cd "$wheels" && find . -type d -name tests -prune -print0 | tar -c --null -T -) | tar -x -C "$1/site-packages" || return
  rm -rf "$wheels"
}

build_compat() {
  local context=$work/compat
  rm -rf "$context"
  mkdir -p "$context"
  cp images/compat/Dockerfile "$context/"
  logged compat unpack_testsuite "$context"
  logged compat unpack_wheels images/compat/requirements.lock "$context/site-packages"
  logged compat unpack_tests_of_wheels "$context"
  chmod -R u=rwX,go=rX "$context/site-packages"
  logged compat docker build --quiet --force-rm --network none --label "cellblock.inputs=$(inputs_of compat)" --tag cellblock/compat "$context" >/dev/null
  rm -rf "$context"
}

# --- the sandbox images unpacked, for launchers that need no Docker ------------------------------------------

is_for_sandboxes() { [[ $1 == python || $1 == datascience || $1 == compat ]]; }

image_roots() {
  if [[ -n ${CELLBLOCK_LAUNCHER_IMAGE_ROOTS:-} ]]; then
    echo "$CELLBLOCK_LAUNCHER_IMAGE_ROOTS"
  elif [[ $EUID -eq 0 ]]; then
    echo /var/lib/cellblock/images
  else
    echo "${XDG_DATA_HOME:-$HOME/.local/share}/cellblock/images"
  fi
}

# NAME/rootfs is a link to NAME/<the image's id>: a reader finds one whole root, the old or the new one.
unpack_root() {
  local folder=$1 id=$2 new=$1/.new-$$ container owner=--no-same-owner status=0
  if [[ $EUID -eq 0 ]]; then owner=--same-owner; fi
  (umask 022 && mkdir -p "$new") || return
  container=$(docker create --network none "$id" true) || return
  docker export "$container" | tar -xp --numeric-owner "$owner" -C "$new" || status=$?
  docker rm "$container" >/dev/null || return
  if [[ $status -ne 0 ]]; then return "$status"; fi
  chmod 755 "$new" || return
  rm -f "$new/.dockerenv" || return
  mkdir -p "$new/mnt" || return
  : >"$new/mnt/context_data" || return  # where a job's context is mounted
  mv -T "$new" "$folder/$id"
}

# Not the one in use, and in no process's mounts: nobody's any more.
drop_old_roots() {
  local old
  for old in "$1"/*/ "$1"/.new-*/; do
    old=${old%/}
    if [[ ! -d $old || -L $old || ${old##*/} == "$2" ]]; then continue; fi
    if ! grep -qsF -- "${old##*/}" /proc/[0-9]*/mountinfo; then rm -rf "$old"; fi
  done
}

ensure_root() {
  local folder id
  folder=$(image_roots)/$1
  id=$(docker image inspect --format '{{.Id}}' "cellblock/$1")
  id=${id#sha256:}
  if [[ $(readlink "$folder/rootfs" 2>/dev/null) == "$id" && -d $folder/$id ]]; then return; fi
  mkdir -p "$work"
  if [[ ! -d $folder/$id ]]; then logged "$1-root" unpack_root "$folder" "$id"; fi
  ln -sfn "$id" "$folder/.rootfs-$$"
  mv -T "$folder/.rootfs-$$" "$folder/rootfs"
  drop_old_roots "$folder" "$id"
  say "$folder/rootfs ready"
}

# --- one image after the other, parents first ---------------------------------------------------------------

ensure() {
  local parent
  parent=$(parent_of "$1")
  case " $checked " in *" $1 "*) return ;; esac
  checked+=" $1"
  # Wheels are laid on the parent image; roots of packages only share its list of packages.
  if [[ -f images/$1/Dockerfile ]]; then ensure "$parent"; fi
  if [[ -n $force ]] || ! is_fresh "$1"; then build "$1"; fi
  if is_for_sandboxes "$1"; then ensure_root "$1"; fi
}

build() {
  local started=$SECONDS
  say "building cellblock/$1 …"
  mkdir -p "$work"
  case $1 in
    datascience | worker) build_wheels "$1" ;;
    compat) build_compat ;;
    *) build_root "$1" ;;
  esac
  say "cellblock/$1 ready, $(docker image inspect --format '{{.Size}}' "cellblock/$1" | awk '{printf "%.0f MB", $1 / 1e6}'), $((SECONDS - started)) s"
}

force="" checked=""
if [[ ${1:-} == --force ]]; then force=yes; shift; fi
if [[ $# -eq 0 ]]; then set -- base python datascience; fi
for name in "$@"; do parent_of "$name" >/dev/null; done
command -v docker >/dev/null || die "docker is missing: run config/host/setup.sh"
if ! docker version >/dev/null 2>&1; then
  if [[ $EUID -ne 0 ]] && sudo -n true 2>/dev/null; then as_root=(sudo -n); fi
  docker version >/dev/null 2>&1 || die "no Docker daemon answers: run this through config/host/with-docker.sh"
fi
for name in "$@"; do ensure "$name"; done
