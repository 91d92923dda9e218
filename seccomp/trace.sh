#!/usr/bin/env bash
# Promises: rewrites traced.txt, the sorted names of every system call the programs in workloads/ make in the
# image cellblock/datascience. Needs strace on the host (Debian package strace), Docker, and the image.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
work=$PWD/../build/seccomp
command -v strace >/dev/null || { echo 'trace.sh: strace is missing (Debian package strace)' >&2; exit 2; }

# The image has no strace: the host's is lent to it, with the libraries it is linked to.
rm -rf "$work"
mkdir -p "$work/strace" "$work/out"
chmod 777 "$work/out"
cp "$(command -v strace)" "$work/strace/"
ldd "$(command -v strace)" | grep -o '/[^ ]*' | xargs cp -Lt "$work/strace/"
loader=$(basename "$work"/strace/ld-linux*)

trace() {
  local name=$1
  shift
  echo "trace: $name"
  docker run --rm --runtime=runc --network none --read-only --tmpfs /tmp --tmpfs /dev/shm --pids-limit 512 \
    --security-opt seccomp=unconfined --security-opt no-new-privileges --cap-drop ALL --cap-add SYS_PTRACE "$@" \
    --volume "$work:/trace" --volume "$PWD/workloads:/workloads:ro" cellblock/datascience \
    "/trace/strace/$loader" --library-path /trace/strace /trace/strace/strace -f -qq -e signal=none \
    -o "/trace/out/$name" python3 "/workloads/$name.py" >"$work/$name.log" 2>&1 || { tail "$work/$name.log" >&2; exit 1; }
}

trace guest --user 0 --cap-add SETUID --cap-add SETGID --cap-add KILL
for name in concurrency files processes science stdlib; do trace "$name"; done

cat "$work"/out/* | sed -nE 's/^[0-9]+ +([a-z0-9_]+)\(.*/\1/p' | LC_ALL=C sort -u >traced.txt
echo "trace: $(wc -l <traced.txt) calls in seccomp/traced.txt"
